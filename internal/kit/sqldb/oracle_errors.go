package sqldb

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
)

// oracleDuplicate is ORA-00001: unique constraint violated.
const oracleDuplicate = 1

// oracleFailures are the codes ORA-xxxxx that trying again may help with. All
// others are Failed.
func oracleFailures() map[int]failure {
	known := map[int]failure{}
	for kind, codes := range map[Kind][]int{
		Passing: {
			60, 8177, // deadlock, cannot serialize
			28, 1012, 1013, 3113, 3114, 3135, 25408, // the connection is lost
			4061, 4065, 4068, 6508, // the package was compiled meanwhile
		},
		Held: {54, 30006}, // a lock was not to be had
		Unavailable: {
			12170, 12514, 12528, 12537, 12541, 12543, 12545, 12547, // no listener, no service
			18, 20, 2391, 12516, 12519, 12520, // no session to spare
		},
	} {
		for _, code := range codes {
			known[code] = failure{kind: kind}
		}
	}
	for _, code := range []int{904, 942} { // unknown column, table
		known[code] = failure{schema: true}
	}
	// Starting, stopping, or a standby now: so are the other connections.
	for _, code := range []int{1033, 1034, 1089, 1090, 16000} {
		known[code] = failure{kind: Unavailable, stale: true}
	}
	return known
}

var (
	oracleUnique = regexp.MustCompile(`ORA-00001:[^(]*\((?:[^()]*\.)?([^().]+)\)`)
	oracleClient = regexp.MustCompile(`DPI-(\d+)`)
	oracleServer = regexp.MustCompile(`ORA-(\d{5})`)
)

// oracleCode returns the number of an ORA-xxxxx, zero for other errors. The driver's
// type is not named, so that this works without the driver.
func oracleCode(err error) int {
	var coded interface {
		error
		Code() int
	}
	if !errors.As(err, &coded) {
		return 0
	}
	return coded.Code()
}

// oracleClassify knows errors of the server by their codes, and those of Oracle's
// client library, which have code zero, by their texts.
func oracleClassify(err error) failure {
	code := oracleCode(err)
	if code == 0 {
		return oracleClientFailure(err.Error())
	}
	if code == oracleDuplicate {
		return oracleDuplicateOf(err.Error())
	}
	f := oracleFailures()[code]
	// A block that fails is undone, unless the session has ended or the call was broken off.
	f.undone = f.kind != Unavailable && !slices.Contains(oracleMidway, code)
	return f
}

// oracleMidway are codes that a commit may get although it has been done.
var oracleMidway = []int{28, 1012, 1013, 3113, 3114, 3135, 25408}

// oracleDuplicateOf looks at the index that "unique constraint (OWNER.INDEX)
// violated" names.
func oracleDuplicateOf(text string) failure {
	if m := oracleUnique.FindStringSubmatch(text); m != nil {
		return failure{kind: Duplicate, index: m[1], undone: true}
	}
	return failure{}
}

// oracleClientFailure classifies by DPI-xxxx: 1010 is a connection that is not
// there any more, 1067 a call that took too long, 1080 a connection that was closed for the
// reason that the text goes on with.
func oracleClientFailure(text string) failure {
	m := oracleClient.FindStringSubmatch(text)
	if m == nil {
		return failure{}
	}
	switch m[1] {
	case "1010", "1067":
		return failure{kind: Passing}
	case "1080":
		for _, reason := range oracleServer.FindAllStringSubmatch(text, -1) {
			code, _ := strconv.Atoi(reason[1])
			if f := oracleFailures()[code]; f.kind == Unavailable {
				return f
			}
		}
		return failure{kind: Passing}
	}
	return failure{}
}
