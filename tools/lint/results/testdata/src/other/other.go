package other

type Wide interface {
	Wide() (a, b int, c string, d bool, err error)
}
