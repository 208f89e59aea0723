package unary

// A Code is a gRPC status code.
type Code uint32

// The status codes that this package uses itself. Handlers may use any.
const (
	OK                Code = 0
	unknown           Code = 2
	InvalidArgument   Code = 3
	DeadlineExceeded  Code = 4
	ResourceExhausted Code = 8
	Unimplemented     Code = 12
	Internal          Code = 13
	Unavailable       Code = 14
)

// numCodes is the number of codes that gRPC defines.
const numCodes = 17

// A Status is the failure of a call.
type Status struct {
	Code    Code
	Message string // any text; at most 1 KiB of it is sent
}

// maxStatusMessage bounds a status message, in bytes before it is encoded.
// Three times as much still fits in a frame of the smallest size.
const maxStatusMessage = 1 << 10

// appendPercentEncoded appends text as grpc-message has it: all but printable
// ASCII is percent-encoded byte by byte.
func appendPercentEncoded(b []byte, text string) []byte {
	const hex = "0123456789ABCDEF"
	if len(text) > maxStatusMessage {
		text = text[:maxStatusMessage]
	}
	for i := 0; i < len(text); i++ {
		if c := text[i]; c >= ' ' && c <= '~' && c != '%' {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&0xf])
		}
	}
	return b
}
