package a

func ofATest() { open("f", true, 1) }
