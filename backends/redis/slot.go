package redis

import (
	"hash/maphash"
	"strings"

	"github.com/headgate-rls/headgate/limit"
)

// slots is the number of slots of a Cluster.
const slots = 16384

// slotOf returns the slot of a key.
func slotOf(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	return slotOfTag(key)
}

// slotOfTag returns the slot of all keys with that in their first braces.
func slotOfTag(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc) % slots
}

// apartSeed is of hashes that stand for slots.
var apartSeed = maphash.MakeSeed()

// slotOf returns the slot of op's key at an instant. Where keys are apart, each has a slot of its own.
func (k *keys) slotOf(op *limit.Op, at limit.Instant) int {
	if k.apart.Load() {
		return int(maphash.String(apartSeed, k.keyOf(op, at)) >> 1)
	}
	if k.isShared(&op.Key, op.Limit) {
		return slotOf(k.keyOf(op, at))
	}
	partition, _ := limit.Partition(op.Key.Group)
	return slotOfTag(escapeGroup(partition)) // see appendOwnKey
}

// crcTable is that of CRC16/XMODEM.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			top := crc & 0x8000
			crc <<= 1
			if top != 0 {
				crc ^= 0x1021
			}
		}
		t[i] = crc
	}
	return t
}()

// unplaced is no slot.
const unplaced = -1

// requestSlot returns the slot that all keys of req share, or unplaced.
func (k *keys) requestSlot(req *limit.Request) int {
	slot := unplaced
	for i := range req.Ops {
		s := k.slotOf(&req.Ops[i], k.told(req.At))
		switch slot {
		case unplaced, s:
			slot = s
		default:
			return unplaced
		}
	}
	return slot
}
