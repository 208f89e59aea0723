package unary

import (
	"testing"

	"google.golang.org/grpc/codes"
)

// The labels are grpc-go's names of the codes, without grpc-go in the program.
func TestCodeLabelsAreThoseOfGRPC(t *testing.T) {
	for code, label := range CodeNames {
		if want := codes.Code(code).String(); label != want {
			t.Errorf("code %d is called %s, want %s", code, label, want)
		}
	}
	if len(CodeNames) != int(codes.Unauthenticated)+1 {
		t.Errorf("%d codes have labels", len(CodeNames))
	}
}
