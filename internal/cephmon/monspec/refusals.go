package monspec

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
)

// This file refuses what makes no sense in a CephMon, whatever the cluster. The CRD refuses most of it as well; an
// object may be older than the CRD.

const (
	mostMons     = 15
	leastTimeout = time.Minute
	mostTimeout  = 168 * time.Hour
)

// Refusals is what is wrong with the spec by itself.
func (s Set) Refusals() (refused []*input.Error) {
	refuse := func(field, value, allowed string) { refused = append(refused, input.Wrong(field, value, allowed)) }
	spec := &s.Spec
	if len(validation.IsDNS1123Subdomain(spec.Policy)) > 0 {
		refuse("spec.policy", spec.Policy, "must be the name of a MaintenancePolicy of namespace "+s.Namespace)
	}
	if spec.Count < 1 || spec.Count > mostMons {
		refuse("spec.count", strconv.Itoa(int(spec.Count)), fmt.Sprintf("must be between 1 and %d", mostMons))
	}
	if t := spec.HealthTimeout; t != nil && (t.Duration < leastTimeout || t.Duration > mostTimeout) {
		refuse("spec.healthTimeout", t.Duration.String(), "must be between 1m and 168h, such as 10m")
	}
	if m := spec.Migrate; m != "" && m != v1alpha1.MigrateManual && m != v1alpha1.MigrateAutomatic {
		refuse("spec.migrate", string(m), "must be Manual or Automatic")
	}
	if p := spec.DataDirHostPath; p != "" && (!path.IsAbs(p) || path.Clean(p) != p || p == "/") {
		refuse("spec.dataDirHostPath", p,
			`must be an absolute path without ".." and without a slash at its end, such as /var/lib/rook`)
	}
	if label := s.Label(); !topology.MatchString(label) {
		refuse("spec.failureDomainLabel", label, "must be topology.kubernetes.io/region, topology.kubernetes.io/zone, "+
			"kubernetes.io/hostname, or topology.rook.io/NAME such as topology.rook.io/rack")
	}
	refused = append(refused, s.zoneRefusals()...)
	fields, templates := s.templates()
	for i, t := range templates {
		refused = append(refused, claimRefusals(fields[i], t)...)
	}
	return append(refused, podRefusals(&spec.PodTemplate)...)
}

// topology are the labels from which Rook's OSDs take their place in CRUSH's map.
var topology = regexp.MustCompile(`^(topology\.kubernetes\.io/(region|zone)|kubernetes\.io/hostname|` +
	`topology\.rook\.io/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$`)

func (s Set) zoneRefusals() (refused []*input.Error) {
	names := s.zoneNames()
	for i, name := range names {
		field := fmt.Sprintf("spec.zones[%d].name", i)
		switch first := slices.Index(names, name); {
		case name == "" || len(validation.IsValidLabelValue(name)) > 0:
			refused = append(refused, input.Wrong(field, name, "must be the value of label "+s.Label()+" on some node"))
		case first < i:
			refused = append(refused, input.Wrong(field, name, fmt.Sprintf("is the same as spec.zones[%d].name", first)))
		}
	}
	if len(names) > 0 && int(s.Spec.Count) > len(names) {
		refused = append(refused, input.Wrong("spec.count", strconv.Itoa(int(s.Spec.Count)), fmt.Sprintf(
			"must be at most %d: a zone has at most one mon, and spec.zones lists %d", len(names), len(names))))
	}
	return refused
}

// claimRefusals names each field of a template that would have no effect.
func claimRefusals(field string, t *v1alpha1.MonVolumeClaimTemplate) (refused []*input.Error) {
	refuse := func(part, value, allowed string) {
		refused = append(refused, input.Wrong(field+"."+part, value, allowed))
	}
	const only = "is not honoured, leave it out: only spec.storageClassName and spec.resources are"
	spec := &t.Spec
	for _, c := range []struct {
		part  string
		set   bool
		value any
	}{
		{"metadata", t.Metadata != nil, ""},
		{"spec.accessModes", spec.AccessModes != nil, spec.AccessModes},
		{"spec.volumeMode", spec.VolumeMode != nil, deref(spec.VolumeMode)},
		{"spec.volumeName", spec.VolumeName != "", spec.VolumeName},
		{"spec.selector", spec.Selector != nil, ""},
		{"spec.dataSource", spec.DataSource != nil, ""},
		{"spec.dataSourceRef", spec.DataSourceRef != nil, ""},
		{"spec.volumeAttributesClassName", spec.VolumeAttributesClassName != nil, deref(spec.VolumeAttributesClassName)},
	} {
		if c.set {
			refuse(c.part, fmt.Sprint(c.value), only)
		}
	}
	if class := spec.StorageClassName; class != nil && len(validation.IsDNS1123Subdomain(*class)) > 0 {
		refuse("spec.storageClassName", *class, "must be the name of a StorageClass, or left out for the default one")
	}
	for name, size := range spec.Resources.Requests {
		switch {
		case name != corev1.ResourceStorage:
			refuse("spec.resources.requests", string(name), "must be storage: nothing else of a claim can be asked for")
		case size.Sign() <= 0:
			refuse("spec.resources.requests.storage", size.String(), "must be more than 0, such as 10Gi")
		}
	}
	slices.SortStableFunc(refused, func(a, b *input.Error) int { return strings.Compare(a.Field, b.Field) })
	return refused
}

func deref[T any](p *T) any {
	if p == nil {
		return ""
	}
	return *p
}

// podRefusals is what the template of the pods must not have.
func podRefusals(t *v1alpha1.MonPodTemplate) (refused []*input.Error) {
	const field = "spec.podTemplate."
	if t.Image == "" {
		refused = append(refused, input.Wrong(field+"image", "", "is required: an image with ceph-mon"))
	} else if err := input.Image(field+"image", t.Image); err != nil {
		refused = append(refused, err)
	}
	for _, key := range reservedLabels {
		if value, set := t.Labels[key]; set {
			refused = append(refused, input.Wrong(field+"labels["+key+"]", value, "must be left out: pods are found by it"))
		}
	}
	for i, arg := range t.Args {
		for _, own := range ownArgs {
			if name, _, _ := strings.Cut(arg, "="); name == own {
				refused = append(refused, input.Wrong(fmt.Sprintf("%sargs[%d]", field, i), arg,
					"must be left out: lockkeeper gives each mon its own"))
			}
		}
	}
	return refused
}

// reservedLabels are those that lockkeeper writes on mon pods. They are Rook's, and the canary lacks them.
var reservedLabels = []string{
	"app", "ceph_daemon_id", "ceph_daemon_type", "mon", "mon_cluster", "rook_cluster", CephMonLabel, CanaryLabel,
}

// Labels of what lockkeeper makes for a CephMon.
const (
	// CephMonLabel has the name of the CephMon.
	CephMonLabel = "lockkeeper.io/cephmon"
	// CanaryLabel is on canaries alone, with the name of the mon that comes.
	CanaryLabel = "lockkeeper.io/mon-canary"
)

var ownArgs = []string{
	"-i", "--id", "--mkfs", "--fsid", "--monmap", "--keyring", "--mon-data", "--public-addr", "--public-addrv",
	"--public-bind-addr", "--foreground", "-f", "-d", "--inject-monmap", "--extract-monmap", "--force-sync",
}

// Shrinking is why a count is too small for the mons that there are; nil: it is not. Mons leave one at a time, each
// only while the rest is a majority. What stays must be a majority of what is there now, so that one mistyped digit
// does not take the redundancy away.
func (s Set) Shrinking(mons quorum.Map) *input.Error {
	if least := quorum.Majority(len(mons)); len(mons) > 0 && int(s.Spec.Count) < least {
		return input.Wrong("spec.count", strconv.Itoa(int(s.Spec.Count)), fmt.Sprintf(
			"must be at least %d, a majority of the %d mons in the monmap; shrink in several steps", least, len(mons)))
	}
	return nil
}

// Warnings are what is allowed, and probably not meant.
func (s Set) Warnings() (warnings []string) {
	switch n := int(s.Spec.Count); {
	case n == 1:
		warnings = append(warnings, "spec.count 1: Ceph stops answering whenever this mon is away, and it cannot be moved: "+
			"while a second one joins, neither has a majority alone")
	case n%2 == 0:
		warnings = append(warnings, fmt.Sprintf("spec.count %d is even: it survives the loss of %d mons, as many as %d do",
			n, quorum.Spare(n, n), n-1))
	}
	return warnings
}
