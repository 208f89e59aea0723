package a

import (
	"errors"
	"sort"
)

type node struct {
	queued, gone bool
	n            int
	next         *node
	list         []int
	of           map[string]int
}

func (h *node) full() bool { return h.n > 3 }
func (h *node) do() error  { return nil }

func use(...any) {}

func bad(h *node, ok bool, list []int, c chan int, m map[string]int, i, j int) {
	if other := list[0]; ok { // want `the condition of this if reads nothing that the statement before it assigns`
		use(other)
	}
	if h.queued = false; h.gone { // want `the condition of this if`
	}
	if h.n++; h.queued { // want `the condition of this if`
	}
	if h.n += 2; ok { // want `the condition of this if`
	}
	if sort.Ints(list); list[0] > 1 { // want `the condition of this if`
	}
	if c <- 1; ok { // want `the condition of this if`
	}
	if _ = h.do(); ok { // want `the condition of this if`
	}
	if a, b := i, j; ok { // want `the condition of this if`
		use(a, b)
	}
	if h.next.queued = true; h.queued { // want `the condition of this if`
	}
	if list[i] = 1; list[j] > 0 { // want `the condition of this if`
	}
	if v := i; func() bool { v := j; return v > 0 }() { // want `the condition of this if`
		use(v)
	}
	if ok {
	} else if i++; j > 0 { // want `the condition of this if`
	}
	switch v := i; { // want `the condition of this switch`
	case ok:
		use(v)
	case j > 0:
	}
	switch v := i; j { // want `the condition of this switch`
	case v:
	}
	switch i++; x := any(j).(type) { // want `the condition of this switch`
	default:
		use(x)
	}
}

func good(h *node, ok bool, list []int, m map[string]int, i, j int) {
	if err := h.do(); err != nil {
		use(err)
	}
	if v, ok := m["a"]; ok {
		use(v)
	}
	if err, target := h.do(), new(error); errors.As(err, target) {
	}
	if i++; i > 3 {
	}
	if h.n++; h.n > 3 {
	}
	if h.n++; h.full() {
	}
	if h.next.n++; h.next.full() {
	}
	if h = h.next; h.queued {
	}
	if h.next = nil; isEmpty(h) {
	}
	if *h = (node{}); h.queued {
	}
	if list[i] = 1; list[i] > j {
	}
	if list[i] = 1; len(list) > 3 {
	}
	if h.of["a"]++; h.of["a"] > 3 {
	}
	if n, more := i, j; n > 0 {
		use(more)
	}
	if ok {
	} else if i++; i > 0 {
	}
	switch v := i; {
	case ok:
	case v > 0:
	}
	switch v := i; v {
	case 1:
	}
	switch v := any(i); x := v.(type) {
	default:
		use(x)
	}
	if ok {
	}
	switch {
	case ok:
	}
}

func isEmpty(h *node) bool { return h.next == nil }
