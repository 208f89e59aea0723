package fleet

// Minutes is for how many minutes there are figures.
const Minutes = 15

// By is by what keys are ordered.
type By byte

// What keys are ordered by.
const (
	Refused By = 'r' // refusals
	Near    By = 'n' // the used part of the limit, in thousandths, at its largest
)

// A Key is what replicas have seen of a key.
type Key struct {
	Name  string // as descriptors.Name has it
	Cut   bool   // Name is only the beginning
	Rule  string // the limit's name
	Limit string // as [descriptors.LimitText] has it; a policy may have another one
	// Figure is at least so large, and at most so much larger.
	Figure, Error int64
	// Minutes are the figures of the last Minutes minutes, the oldest first.
	Minutes []int64
}

// add adds what another replica has seen of the same key.
func (k *Key) add(other *Key, by By) {
	k.Error += other.Error
	for i := range k.Minutes {
		if by == Near {
			k.Minutes[i] = max(k.Minutes[i], other.Minutes[i])
		} else {
			k.Minutes[i] += other.Minutes[i]
		}
	}
}

// sum sets the figure from those of the last minutes.
func (k *Key) sum(by By, minutes int) {
	for _, n := range k.Minutes[len(k.Minutes)-minutes:] {
		if by == Near {
			k.Figure = max(k.Figure, n)
		} else {
			k.Figure += n
		}
	}
}
