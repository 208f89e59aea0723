package stack

import "github.com/headgate-rls/headgate/backends"

// Caps returns what the store at rawURL promises, without connecting. It fails
// where New would fail because of the URL.
func Caps(rawURL string) (backends.Caps, error) {
	k, err := backends.KindOf(rawURL)
	if err != nil {
		return backends.Caps{}, err
	}
	caps, err := k.Caps(rawURL)
	if err == nil {
		caps.Others, err = samples()
	}
	return caps, err
}

// samples are what there is to choose from.
func samples() (all []backends.Caps, err error) {
	for _, k := range backends.Kinds() {
		for _, url := range k.Samples {
			caps, err := k.Caps(url)
			if err != nil {
				return nil, err
			}
			all = append(all, caps)
		}
	}
	return all, nil
}

// HasSchema reports whether the store at rawURL has a schema, which [Stack.Migrate] brings up to date.
func HasSchema(rawURL string) bool {
	k, err := backends.KindOf(rawURL)
	return err == nil && k.Schema != nil
}
