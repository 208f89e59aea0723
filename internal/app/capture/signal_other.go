//go:build !unix

package capture

func ignoreSizeSignal() {}
