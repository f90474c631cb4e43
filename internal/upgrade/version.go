// Package upgrade decides whether an OSD may be started with another version of Ceph. Ceph's rules: monitors first; an
// OSD is at most two releases newer than what all OSDs are required to have; none goes back.
package upgrade

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
)

// Version is a version of Ceph: 18.2.7. The first number is the release.
type Version struct {
	Release, Minor, Patch int
}

// A development build says "20.3.0-1234-gabcdef", which is 20.3.0 for us.
var versionText = regexp.MustCompile(`(?:^|\bversion )(\d{1,4})\.(\d{1,4})\.(\d{1,6})\b`)

// ParseVersion reads "18.2.7", or the line that `ceph-osd --version` prints.
func ParseVersion(text string) (Version, error) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("%.80q is no version of Ceph, such as 18.2.7", text)
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // digits, and few
	}
	return Version{n[0], n[1], n[2]}, nil
}

// ParseVersions reads versions, whatever they are of. What is none is missing.
func ParseVersions(texts map[string]string) map[string]Version {
	out := make(map[string]Version, len(texts))
	for of, text := range texts {
		if v, err := ParseVersion(text); err == nil {
			out[of] = v
		}
	}
	return out
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Release, v.Minor, v.Patch) }

// Compare is negative when v is older than other.
func (v Version) Compare(other Version) int {
	return cmp.Or(cmp.Compare(v.Release, other.Release), cmp.Compare(v.Minor, other.Minor),
		cmp.Compare(v.Patch, other.Patch))
}

// ReleaseNamed is the release that Ceph calls by a name: 16 for "pacific". They are named along the alphabet. 0: that
// is no name.
func ReleaseNamed(name string) int {
	if name == "" || name[0] < 'a' || name[0] > 'z' {
		return 0
	}
	return int(name[0]-'a') + 1
}
