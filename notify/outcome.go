package notify

// An Outcome is what became of a request to send.
type Outcome string

// The outcomes.
const (
	Queued      Outcome = "queued"
	Limited     Outcome = "limited"
	Unknown     Outcome = "unknown_user"
	Invalid     Outcome = "invalid"
	Unavailable Outcome = "unavailable"
	Failed      Outcome = "failed"
)

// Outcomes returns all of them.
func Outcomes() []Outcome {
	return []Outcome{Queued, Limited, Unknown, Invalid, Unavailable, Failed}
}
