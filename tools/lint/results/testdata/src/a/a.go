package a

import "other"

type key string

type reader struct{}

func fiveResults() (a, b int, c string, d bool, err error) { return } // want `5 results, want at most 4: return a struct`

func fiveTypes() (int, string, bool, key, error) { panic("") } // want `5 results, want at most 4: return a struct`

func twoStrings() (string, string) { return "", "" } // want `2 results are of type string: name them`

func apart() (string, error, string) { return "", nil, "" } // want `2 results are of type string`

func threeOfOne() (key, key, key) { return "", "", "" } // want `3 results are of type key`

func blank() (_, _ string) { return "", "" } // want `2 results are of type string`

func oneName() (a, _ string) { return "", "" } // want `2 results are of type string`

func (reader) Five() (a, b int, c string, d bool, err error) { return } // want `5 results`

type source interface {
	next() (string, string, error) // want `2 results are of type string`
	last() (string, error)
}

var literal = func() (int, int) { return 0, 0 } // want `2 results are of type int`

type wide struct{}

// Wide is as another package's interface wants it.
func (wide) Wide() (a, b int, c string, d bool, err error) { return }

var _ other.Wide = wide{}

func none() {}

func four() (n int, name string, ok bool, err error) { return }

func named() (key, value string) { return }

func namedGroups() (n int, key, value string, err error) { return }

func differ() (key, string, error) { return "", "", nil }

var also = func() (int, error) { return 0, nil }

type sink interface {
	next() (key, value string, err error)
}
