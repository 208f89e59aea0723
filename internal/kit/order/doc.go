// Package order sorts lists of any type by one compiled sort.
//
// Each type of element that slices.SortFunc sorts by value brings a copy of it into the program, of about 15 KB. All
// pointers share one. A list that is sorted now and then, and is short, is sorted here.
//
// # To change it
//
//   - how lists are sorted: order.go; go test ./internal/kit/order
package order
