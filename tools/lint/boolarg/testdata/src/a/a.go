package a

import "strconv"

type server struct{}

type presence bool

const existing = true

func open(name string, existing bool, size int)       {}
func report(warning bool, format string, args ...any) {}
func list(args ...bool)                               {}
func (server) setServing(on bool)                     {}
func (server) drop(name string, cut bool)             {}
func (server) add(cut bool, name string)              {}
func typed(p presence, name string)                   {}

func bad(s server, format func(set bool, text string)) {
	open("f", true, 1)     // want `true does not say what it is: give the argument existing a name`
	open("f", (false), 1)  // want `false does not say`
	report(false, "%d", 1) // want `give the argument warning a name`
	report(false, "none")  // want `give the argument warning a name`
	s.add(true, "x")       // want `give the argument cut a name`
	format(true, "x")      // want `give the argument set a name`
}

func good(s server, is bool) {
	open("f", existing, 1)
	open("f", is, 1)
	open("f", !is, 1)
	typed(true, "x")
	list(true, false)
	s.setServing(true)
	s.drop("x", true)
	_ = strconv.AppendBool(nil, true)
	func(on bool, n int) {}(is, 1)
}

func shadowed() {
	const true = 1 == 1
	open("f", true, 1)
}
