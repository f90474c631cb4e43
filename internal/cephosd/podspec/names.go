package podspec

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
)

// VersionLabel is on pods that do nothing but ask an OSD's program for its version. Its value is the hash of the
// template.
const VersionLabel = "lockkeeper.io/version-of"

// VersionAnnotation is followed by the hash of a template. There a person says on a CephOSD which version of Ceph the
// template's image has, if its program cannot be asked.
const VersionAnnotation = VersionLabel + "-"

// OwnerLabel says to which CephOSD a pod belongs: Owner is its value.
const OwnerLabel = "ceph.elemental.net/owner"

// Annotations of a pod. They are those of the operator that made the first CephOSDs; Released and Remove are ours.
const (
	HashAnnotation  = "ceph.elemental.net/pod-template-hash"
	HostAnnotation  = "ceph.elemental.net/host"
	DataAnnotation  = "ceph.elemental.net/data"
	DBAnnotation    = "ceph.elemental.net/db"
	WALAnnotation   = "ceph.elemental.net/wal"
	StateAnnotation = "ceph.elemental.net/pod-state"
	// ReleasedAnnotation says when lockkeeper released the pod. A pod of ours that is up to date without it was released
	// by a person.
	ReleasedAnnotation = "ceph.elemental.net/released"
	// RemoveAnnotation is "true" when a person says that the pod may go although its OSD's data is needed.
	RemoveAnnotation = "lockkeeper.io/remove"
)

// Labels of a pod that say what Ceph knows of its OSD. MaintenancePolicy looks for the same ones.
const (
	IDLabel = "ceph-osd-id"
	// FailureDomainLabel is followed by the CRUSH type: topology-location-zone.
	FailureDomainLabel = "topology-location-"
)

// Owner is the value of the owner label of the pods of a CephOSD.
func Owner(name string) string { return v1alpha1.Kind + "-" + name }

// longestOwner is how long the name of a CephOSD may be, so that Owner is the value of a label.
const longestOwner = 63 - len(v1alpha1.Kind+"-")

// PodName is the name of an OSD's pod: osd-<host>-<device>-<hash of the key>. The same OSD always has the same,
// different OSDs have different ones, and it is a label of DNS, at most 63 characters. The CephOSD's name is not in it:
// if two of them ask for the same device, only one gets a pod.
func PodName(o OSD) string {
	const host, device = 22, 25 // with "osd-", two hyphens and the hash: 63 at most
	short, _, _ := strings.Cut(o.Host, ".")
	base := o.Data[strings.LastIndexByte(o.Data, '/')+1:]
	return "osd-" + join(head(plain(short), host), tail(plain(base), device), hashOf(o.Key()))
}

// hashOf is short, and made of letters and digits that are allowed in names: 50 bits.
func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:10]
}

var notPlain = regexp.MustCompile(`[^a-z0-9]+`)

// plain makes of a text what may be in a name.
func plain(s string) string {
	return strings.Trim(notPlain.ReplaceAllString(strings.ToLower(s), "-"), "-")
}

func head(s string, most int) string { return strings.Trim(s[:min(len(s), most)], "-") }

// tail is the end of a device's name: it is there that those of one host differ.
func tail(s string, most int) string { return strings.Trim(s[max(0, len(s)-most):], "-") }

// join leaves out what is empty.
func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "-")
}

// rightName tells whether a pod of the OSD may have this name: ours, or one that the original operator made up.
func rightName(name string, o OSD) bool {
	return name == PodName(o) || strings.HasPrefix(name, originalPrefix(o))
}

// MayBeNamed tells whether a pod of the OSD may have this name: ours, or one that the original operator made up.
func MayBeNamed(name string, o OSD) bool { return rightName(name, o) }

var (
	firstLabel  = regexp.MustCompile(`^([^.]+)(?:\..+)?$`)
	lastElement = regexp.MustCompile(`^.+/([^/]+)$`)
	notWord     = regexp.MustCompile(`[^\p{L}\p{N}_]`)
)

// originalPrefix is how the original operator begins the names of an OSD's pods; at random it adds five letters or
// digits, and when a ReplicaSet stands in between, that adds some more.
func originalPrefix(o OSD) string {
	device := notWord.ReplaceAllString(lastElement.ReplaceAllString(o.Data, "$1"), "-")
	prefix := []rune("osd-" + firstLabel.ReplaceAllString(o.Host, "$1") + "-" + device + "-")
	return string(prefix[:min(len(prefix), 58)])
}
