package messages

import (
	"fmt"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/protofields"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Field numbers of Kuadrant's ReserveRequest, CommitRequest and ReserveResponse. The first two fields of the requests
// are those of RateLimitRequest: https://github.com/Kuadrant/limitador/pull/515, kuadrantrls.proto.
const (
	fieldReserveAmount = 3 // a number
	fieldCommitID      = 3 // a text
	fieldCommitActual  = 4

	fieldReservedCode = 1
	fieldReservedID   = 2
)

// DecodeReserve fills r from an encoded ReserveRequest. The rules say how long a reservation lives, so its ttl is not
// read.
func DecodeReserve(r *ratelimit.Request, message []byte) error {
	amount, _, err := decodeKuadrant(r, message)
	if err != nil {
		return err
	}
	r.Purpose, r.Estimate = ratelimit.Holds, &ratelimit.Estimate{Units: amount}
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		d.Hits, d.HasHits, d.Refund = 0, true, false
	}
	return nil
}

// DecodeCommit fills r from an encoded CommitRequest: it settles what its ID names. Without one it reports.
func DecodeCommit(r *ratelimit.Request, message []byte) error {
	actual, id, err := decodeKuadrant(r, message)
	if err != nil {
		return err
	}
	r.Purpose, r.NoLease = ratelimit.Reports, true // a report begins no request in flight
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		d.Hits, d.HasHits, d.Refund = actual, true, false
	}
	if id == "" {
		return nil
	}
	r.Purpose = ratelimit.Commits
	for _, op := range []string{"settle", ratelimit.OpRelease} {
		d := addDescriptor(r)
		d.Hits, d.HasHits = actual, true
		d.Entries = append(d.Entries, descriptors.Entry{Key: ratelimit.OpKey, Value: op},
			descriptors.Entry{Key: ratelimit.LeaseEntry, Value: id})
	}
	return nil
}

// decodeKuadrant fills the domain and the descriptors of r, and returns the number and the text that come with them.
func decodeKuadrant(r *ratelimit.Request, message []byte) (n uint64, id string, err error) {
	if len(message) > MaxMessageSize {
		return 0, "", fmt.Errorf("the request has %d bytes, at most %d are allowed", len(message), MaxMessageSize)
	}
	*r = ratelimit.Request{Descriptors: r.Descriptors[:0], Size: len(message)}
	f := protofields.Of(string(message)) // all strings of r are parts of this one
	for f.Next() {
		switch {
		case f.IsBytes(fieldRequestDomain):
			r.Domain, err = validText(f.Value)
		case f.IsBytes(fieldRequestDescriptors):
			if len(r.Descriptors) == MaxDescriptors {
				return 0, "", fmt.Errorf("the request has more than %d descriptors", MaxDescriptors)
			}
			err = decodeDescriptor(addDescriptor(r), f.Value)
		case f.IsBytes(fieldCommitID):
			id, err = validText(f.Value)
		case f.IsNumber(fieldReserveAmount), f.IsNumber(fieldCommitActual):
			n = f.Number
		}
		if err != nil {
			return 0, "", err
		}
	}
	return n, id, complete(&f)
}

// AppendReserved appends r as an encoded ReserveResponse to b.
func AppendReserved(r *ratelimit.Response, b []byte) []byte {
	return appendStringField(AppendCommitted(r, b), fieldReservedID, r.Token)
}

// AppendCommitted appends r as an encoded CommitResponse to b: its code.
func AppendCommitted(r *ratelimit.Response, b []byte) []byte {
	code := uint64(codeOK)
	if r.OverLimit {
		code = codeOverLimit
	}
	return appendVarintField(b, fieldReservedCode, code)
}
