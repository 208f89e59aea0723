package dynamodb

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/headgate-rls/headgate/backends"
)

// An outcome is what came of a call.
type outcome uint8

const (
	done    outcome = iota
	changed         // an item is not as was thought: nothing was written
	busy            // throttled, or a transaction has the item: nothing was written
	unsent          // no connection was there: nothing was written
	lost            // no answer: the call may have been carried out, or still may be
	wrong           // the same call will never be accepted: nothing was written
)

// codes are the outcomes of what DynamoDB calls its errors. Others are known by their HTTP status.
var codes = map[string]outcome{
	"ConditionalCheckFailedException":        changed,
	"TransactionConflictException":           busy,
	"ReplicatedWriteConflictException":       busy,
	"ProvisionedThroughputExceededException": busy,
	"RequestLimitExceeded":                   busy,
	"LimitExceededException":                 busy,
	"ThrottlingException":                    busy,
	"Throttling":                             busy,
	"TransactionInProgressException":         lost,
}

// reasons are the outcomes of why a transaction was cancelled.
var reasons = map[string]outcome{
	"None":                          done,
	"ConditionalCheckFailed":        changed,
	"TransactionConflict":           busy,
	"ProvisionedThroughputExceeded": busy,
	"ThrottlingError":               busy,
}

// judge returns the outcome of a call by its error. sent says whether there was a connection to send it
// on.
func judge(err error, sent bool) outcome {
	if err == nil {
		return done
	}
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		return judgeCancelled(cancelled.CancellationReasons)
	}
	var api smithy.APIError
	var status *smithyhttp.ResponseError
	isAPI, hasStatus := errors.As(err, &api), errors.As(err, &status)
	if isAPI {
		if o, ok := codes[api.ErrorCode()]; ok {
			return o
		}
	}
	switch {
	case hasStatus && status.Response != nil && status.HTTPStatusCode() == http.StatusTooManyRequests:
		return busy
	case isAPI && hasStatus && status.Response != nil && status.HTTPStatusCode() >= 400 && status.HTTPStatusCode() < 500:
		return wrong
	case !sent:
		return unsent
	}
	return lost
}

// judgeCancelled: one wrong item is enough for all, and one that has changed says more than one that
// somebody has.
func judgeCancelled(all []types.CancellationReason) outcome {
	worst := busy
	for _, r := range all {
		code := "None"
		if r.Code != nil {
			code = *r.Code
		}
		switch o, ok := reasons[code]; {
		case !ok:
			return wrong
		case o == changed:
			worst = changed
		}
	}
	return worst
}

// howToMigrate is what to do about a table that is not there.
const howToMigrate = "if the table is missing: run headgate migrate --backend URL, or have an administrator make " +
	"what headgate migrate --print prints"

// refusals are the error codes that retrying does not remove: DynamoDB rejects the caller, or the table
// is missing or has the wrong keys. Expired credentials are not listed, because the SDK may get new ones.
var refusals = map[string]bool{
	"AccessDeniedException":               true,
	"IncompleteSignatureException":        true,
	"InvalidSignatureException":           true,
	"MissingAuthenticationTokenException": true,
	"ResourceNotFoundException":           true,
	"UnrecognizedClientException":         true,
	"ValidationException":                 true,
}

// standing adds [backends.ErrMisconfigured] to an error of Ping or Migrate that retrying does not remove.
func standing(err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok && refusals[api.ErrorCode()] {
		return fmt.Errorf("%w: %w", backends.ErrMisconfigured, err)
	}
	return err
}

// failed returns the error that callers get. inDoubt says whether the call may have taken effect
// all the same.
func failed(err error, inDoubt bool) error {
	if errors.As(err, new(*types.ResourceNotFoundException)) {
		err = fmt.Errorf("%w (%s)", err, howToMigrate)
	}
	kind := backends.ErrUnavailable
	if declines(err) {
		kind = backends.ErrDeclined
	}
	return backends.Failed(kind, err, inDoubt)
}

// declines reports whether DynamoDB answers with err, and other items may be had: a key is throttled or
// others write to it, or its item is too large.
func declines(err error) bool {
	if errors.Is(err, errCapacity) || errors.Is(err, errChanged) {
		return true
	}
	switch o := judge(err, true); o {
	case changed, busy:
		return true
	case wrong:
		return !errors.Is(standing(err), backends.ErrMisconfigured)
	}
	return false
}
