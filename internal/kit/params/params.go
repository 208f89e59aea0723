package params

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// A Row is one parameter of a table.
type Row struct {
	Name string
	Set  func(text string) error // says what is wanted, and does not quote the text
	Get  func() string           // as it is shown: a secret as ***
}

// Text is any text; a secret has a String method that hides it.
func Text[T ~string](name string, to *T) Row {
	return row(name, to, "", func(text string) (T, error) { return T(text), nil }, func(T) bool { return true })
}

// Bool is true or false.
func Bool(name string, to *bool) Row {
	return row(name, to, "true or false", strconv.ParseBool, func(bool) bool { return true })
}

// Number is a whole number within bounds.
func Number(name string, to *int, least, most int) Row {
	return row(name, to, fmt.Sprintf("a number from %d to %d", least, most), strconv.Atoi,
		func(n int) bool { return least <= n && n <= most })
}

// Duration is a duration within bounds.
func Duration(name string, to *time.Duration, least, most time.Duration) Row {
	return row(name, to, fmt.Sprintf("a duration from %v to %v", least, most), time.ParseDuration,
		func(d time.Duration) bool { return least <= d && d <= most })
}

// Word is one of several words, of which to gets the number.
func Word[T ~uint8](name string, to *T, words ...string) Row {
	parse := func(text string) (T, error) {
		i := slices.Index(words, text)
		if i < 0 {
			return 0, strconv.ErrSyntax
		}
		return T(i), nil
	}
	r := row(name, to, "one of "+strings.Join(words, ", "), parse, func(T) bool { return true })
	r.Get = func() string { return words[*to] }
	return r
}

func row[T any](name string, to *T, want string, parse func(string) (T, error), fits func(T) bool) Row {
	set := func(text string) error {
		v, err := parse(text)
		if err != nil || !fits(v) {
			return errors.New("want " + want)
		}
		*to = v
		return nil
	}
	return Row{Name: name, Set: set, Get: func() string { return fmt.Sprint(*to) }}
}

// Parse reads the parameters of a URL, what follows its question mark.
func Parse(query string, rows []Row) error {
	others, err := Take(query, rows)
	if err != nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("unknown parameter %q; known are %s", slices.Min(slices.Collect(maps.Keys(others))),
		strings.Join(names(rows), ", "))
}

// Take reads those parameters of a URL that rows have, and returns the others. A name that is near
// to one of the rows is an error.
func Take(query string, rows []Row) (others url.Values, err error) {
	others, err = url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("the parameters after the ? cannot be parsed")
	}
	for _, r := range rows {
		texts, given := others[r.Name]
		if !given {
			continue
		}
		if len(texts) > 1 {
			return nil, fmt.Errorf("parameter %s is given %d times", r.Name, len(texts))
		}
		if err := r.Set(texts[0]); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", r.Name, texts[0], err)
		}
		delete(others, r.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if meant := spell.DidYouMean(name, names(rows)); meant != "" {
			return nil, fmt.Errorf("unknown parameter %q%s", name, meant)
		}
	}
	return others, nil
}

func names(rows []Row) []string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = r.Name
	}
	return list
}
