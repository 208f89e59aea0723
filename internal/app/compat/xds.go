package compat

import (
	"strconv"
	"strings"
)

// xdsType is the CONFIG_TYPE with which rules come by xDS.
const xdsType = "GRPC_XDS_SOTW"

// leastMessage is the message that headgate always takes, in bytes.
const leastMessage = 64 << 20

// byXDS and byFiles are the conditions that rules come so.
func byXDS(t *translation) bool   { return t.text("CONFIG_TYPE") == xdsType }
func byFiles(t *translation) bool { return !byXDS(t) }

// copy1 takes a variable or its default, unless that is empty.
func copy1(name string) func(*translation) []string {
	return func(t *translation) []string {
		if text := t.text(name); text != "" {
			return []string{text}
		}
		return nil
	}
}

// list takes a variable that has several values, separated by commas.
func list(name string) func(*translation) []string {
	return func(t *translation) []string {
		var values []string
		for part := range strings.SplitSeq(t.text(name), ",") {
			if part = strings.TrimSpace(part); part != "" {
				values = append(values, part)
			}
		}
		return values
	}
}

// xdsFile takes a variable that is about TLS to the control plane.
func xdsFile(name string) func(*translation) []string {
	return func(t *translation) []string {
		value := copy1(name)(t)
		if value != nil && !t.on("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
			t.warn("%s has no effect, because CONFIG_GRPC_XDS_SERVER_USE_TLS is not true: the connection to the control plane "+
				"is not encrypted", name)
			return nil
		}
		return value
	}
}

func xdsMaxMessage(t *translation) []string {
	if n, _ := strconv.Atoi(t.text("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")); n > leastMessage {
		return []string{strconv.Itoa(n)}
	}
	return nil
}

// xdsHealth fails health checks where the reference would not have opened its ports yet.
func xdsHealth(t *translation) []string {
	if t.on("FORCE_START_WITHOUT_INITIAL_CONFIG") && !t.on("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED") {
		return nil
	}
	return []string{"rules"}
}
