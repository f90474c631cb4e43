package load

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
)

// record is what an object's content says of itself.
//
// Layout, big endian: 8 bytes magic, 8 object number, 8 sequence number, filler, 8 bytes CRC-64 of everything before.
type record struct {
	object   int
	sequence uint64
}

const (
	magic      = "LABLOAD1"
	headerSize = len(magic) + 8 + 8
	sumSize    = 8

	// MinObjectSize is that of a record without filler.
	MinObjectSize = headerSize + sumSize
)

var crcTable = crc64.MakeTable(crc64.ECMA)

// encode fills the space between header and sum with noise: equal blocks could hide that one was mistaken for another.
func encode(r record, size int) []byte {
	b := make([]byte, size)
	copy(b, magic)
	binary.BigEndian.PutUint64(b[len(magic):], uint64(r.object))
	binary.BigEndian.PutUint64(b[len(magic)+8:], r.sequence)
	noise := rand.NewPCG(uint64(r.object), r.sequence)
	filler := b[headerSize : size-sumSize]
	for len(filler) >= 8 {
		binary.BigEndian.PutUint64(filler, noise.Uint64())
		filler = filler[8:]
	}
	sum := crc64.Checksum(b[:size-sumSize], crcTable)
	binary.BigEndian.PutUint64(b[size-sumSize:], sum)
	return b
}

func decode(b []byte) (record, error) {
	if len(b) < MinObjectSize {
		return record{}, fmt.Errorf("content of %d bytes", len(b))
	}
	if string(b[:len(magic)]) != magic {
		return record{}, fmt.Errorf("content that no load has written")
	}
	body, sum := b[:len(b)-sumSize], binary.BigEndian.Uint64(b[len(b)-sumSize:])
	if crc64.Checksum(body, crcTable) != sum {
		return record{}, fmt.Errorf("content with a wrong checksum")
	}
	return record{
		object:   int(binary.BigEndian.Uint64(b[len(magic):])),
		sequence: binary.BigEndian.Uint64(b[len(magic)+8:]),
	}, nil
}
