package rados

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Types of Ceph's keys, the first two bytes of each (src/auth/Crypto.h).
const (
	keyAES     = 1
	keyAES256K = 2 // since CVE-2025-30156, and the only one in a new cluster
)

// firstWithAES256K are the first versions that know keys of that type, by release. Those that are newer know them all
// along.
var firstWithAES256K = map[int][2]int{19: {2, 6}, 20: {2, 4}, 21: {2, 0}}

// keyType is the type of a key; 0: it is no Ceph key.
func (k Key) keyType() uint16 {
	raw, err := base64.StdEncoding.DecodeString(string(k))
	if err != nil || len(raw) < 16 {
		return 0
	}
	return binary.LittleEndian.Uint16(raw)
}

// readable says why a librados of that version cannot use the key; "": it can, or nothing is known of the version.
func (c Config) readable(version string) string {
	if c.Key.keyType() != keyAES256K || version == "" || knowsAES256K(version) {
		return ""
	}
	return fmt.Sprintf("the key of client.%s is of type AES256K, and this program runs with librados %s, which cannot "+
		"read it: "+
		"use librados 20.2.4 or newer", c.User, version)
}

// knowsAES256K tells whether a version of Ceph, such as 18.2.7, knows keys of that type. One that cannot be read does:
// librados itself will say if not.
func knowsAES256K(version string) bool {
	var numbers [3]int
	for i, part := range strings.SplitN(version, ".", 3) {
		digits, _, _ := strings.Cut(part, "-")
		n, err := strconv.Atoi(digits)
		if err != nil {
			return true
		}
		numbers[i] = n
	}
	release, minor, patch := numbers[0], numbers[1], numbers[2]
	first, ok := firstWithAES256K[release]
	if !ok {
		return release > 21
	}
	return minor > first[0] || minor == first[0] && patch >= first[1]
}
