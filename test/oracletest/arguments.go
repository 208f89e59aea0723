package oracletest

import (
	"database/sql"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
)

var placeholderN = regexp.MustCompile(`:(\d+)`)

// CheckArguments says what is wrong with the arguments of a call: they are text, whole numbers and
// bytes, and there are as many as placeholders, which count up from 1.
func CheckArguments(c Call) error {
	marks := placeholderN.FindAllStringSubmatch(c.Text, -1)
	if len(marks) != len(c.Args) {
		return fmt.Errorf("%d placeholders and %d arguments", len(marks), len(c.Args))
	}
	for i, m := range marks {
		// Drivers bind by where a placeholder stands, whatever its number.
		if m[1] != strconv.Itoa(i+1) {
			return fmt.Errorf("placeholder :%s stands at place %d", m[1], i+1)
		}
	}
	for _, a := range c.Args {
		switch v := a.Value.(type) {
		case string, int64, []byte, nil:
		case sql.Out:
			if k := reflect.TypeOf(v.Dest); k != reflect.TypeFor[*string]() && k != reflect.TypeFor[*int64]() &&
				k != reflect.TypeFor[*[]byte]() {
				return fmt.Errorf("an OUT parameter of type %v", k)
			}
		default:
			return fmt.Errorf("an argument of type %T", v)
		}
	}
	return nil
}
