// Package kafka publishes the messages of the notification gateway and consumes them.
package kafka
