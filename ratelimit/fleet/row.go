package fleet

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/backends"
)

// maxReplicaName bounds the name of a replica, in bytes.
const maxReplicaName = 64

// A row is what a replica writes, as JSON: as many keys as fit into a row of the store.
type row struct {
	replica string
	Name    string `json:"name"`
	Items   []item `json:"keys"`
}

// An item is a key in a row. Minutes are without zeros at the beginning.
type item struct {
	By      string  `json:"b"`
	Name    string  `json:"k"`
	Cut     bool    `json:"c,omitempty"`
	Rule    string  `json:"r"`
	Limit   string  `json:"l"`
	Error   int64   `json:"e,omitempty"`
	Minutes []int64 `json:"m"`
}

func newItem(by By, k *Key) item {
	minutes := k.Minutes
	for len(minutes) > 1 && minutes[0] == 0 {
		minutes = minutes[1:]
	}
	return item{string(by), k.Name, k.Cut, k.Rule, k.Limit, k.Error, minutes}
}

// encode puts items into rows. There is one at least, which says that the replica is there. An item that is too large
// for a row, because of the name of its rule, is left out.
func encode(replica, name string, items []item) (rows []backends.Row) {
	key := func() string { return replica + "/" + strconv.Itoa(len(rows)) }
	head, _ := json.Marshal(name) // a string always can be
	whole := func(list []byte) []byte {
		return append(append(append([]byte(`{"name":`), head...), append([]byte(`,"keys":[`), list...)...), ']', '}')
	}
	var list []byte
	for i := range items {
		text := items[i].text()
		room := backends.MaxRowLen - len(key()) - len(whole(nil)) - 1
		if len(text) > room {
			continue
		}
		if len(list)+len(text) > room {
			rows, list = append(rows, backends.Row{Key: key(), Value: string(whole(list))}), nil
		}
		if len(list) > 0 {
			list = append(list, ',')
		}
		list = append(list, text...)
	}
	if len(list) > 0 || len(rows) == 0 {
		rows = append(rows, backends.Row{Key: key(), Value: string(whole(list))})
	}
	return rows
}

func (i *item) text() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(i) // texts and numbers always can be
	return bytes.TrimRight(b.Bytes(), "\n")
}

// decode reads a row. One that another release has written otherwise is not ok.
func decode(from backends.Row) (r row, ok bool) {
	r.replica, _, ok = strings.Cut(from.Key, "/")
	return r, ok && json.Unmarshal([]byte(from.Value), &r) == nil
}

// keys returns the keys of a row, by what they are ordered.
func (r *row) keys(by By) (list []Key) {
	for _, i := range r.Items {
		if i.By != string(by) || len(i.Minutes) > Minutes {
			continue
		}
		minutes := make([]int64, Minutes)
		copy(minutes[Minutes-len(i.Minutes):], i.Minutes)
		list = append(list, Key{Name: i.Name, Cut: i.Cut, Rule: i.Rule, Limit: i.Limit, Error: i.Error, Minutes: minutes})
	}
	return list
}
