// Package cephosd is lockkeeper's hand on the pods of OSDs: those that it makes itself from a CephOSD, and those that
// Deployments make, as Rook's do. It satisfies activities.OSDSets: it joins what Kubernetes and Ceph say, lets the pure
// packages decide, and carries out what they decided.
package cephosd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephimage"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// Ceph is what is asked of Ceph.
type Ceph interface {
	// OSDs looks at all OSDs; with metadata also at what they said of themselves.
	OSDs(ctx context.Context, key storage.ClusterKey, metadata bool) (cephcluster.OSDs, error)
	// Versions asks which versions of Ceph run there.
	Versions(ctx context.Context, key storage.ClusterKey) (cephcluster.Versions, error)
	// MonVersions asks which version each mon runs, by its name; or says why there is no answer.
	MonVersions(ctx context.Context, key storage.ClusterKey) (map[string]upgrade.Version, string, error)
	// OKToStop answers which of these OSDs may stop together now.
	OKToStop(ctx context.Context, key storage.ClusterKey, osds []int) ([]int, storage.Answer, error)
	// Life asks whether every OSD that is up lives, but for some.
	Life(ctx context.Context, key storage.ClusterKey, except []int) (storage.Life, error)
	// SafeToDestroy answers, for each, whether nobody needs its data.
	SafeToDestroy(ctx context.Context, key storage.ClusterKey, osds []int) (map[int]storage.Answer, error)
	// Mons looks at the monmap and the quorum.
	Mons(ctx context.Context, key storage.ClusterKey) (cephcluster.Mons, error)
}

// OSDSets are all OSDs that can be replaced.
type OSDSets struct {
	typed kubernetes.Interface
	api   client.Client
	ceph  Ceph

	rights *rights // nil: not looked at
	images *cephimage.Images
}

// New makes OSDSets. Both clients are of one API server, and api knows the scheme of package kube.
func New(typed kubernetes.Interface, api client.Client, ceph Ceph) *OSDSets {
	return &OSDSets{typed: typed, api: api, ceph: ceph, images: cephimage.New(typed)}
}

// kind is what the two kinds of sets do differently.
type kind interface {
	survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error)
	rehearse(ctx context.Context, in activities.Replacement) (activities.Rehearsal, error)
	// running is how a batch stands, or says why none of it may be replaced any more.
	running(ctx context.Context, in activities.Replacement) (standing, storage.Answer, error)
	replace(ctx context.Context, in activities.Replacement) error
	await(ctx context.Context, in activities.AwaitInput, beat func(activities.Arrival)) (activities.Arrival, error)
	confirm(ctx context.Context, in activities.AwaitInput) error
}

func (f *OSDSets) of(ref activities.OSDSetRef) kind {
	switch ref.Kind {
	case activities.OSDSetDeployments:
		return deployments{OSDSets: f, ref: ref}
	case activities.OSDSetWaiting:
		return waiting{OSDSets: f, ref: ref}
	case activities.OSDSetCephOSD:
	}
	return cephOSD{OSDSets: f, ref: ref}
}

// Survey implements activities.OSDSets.
func (f *OSDSets) Survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error) {
	wrong, err := f.rights.missing(ctx, in.OSDSet)
	if err != nil {
		return activities.Survey{}, err
	}
	if wrong != nil {
		return activities.Survey{Found: true, Refused: []input.Error{*wrong}}, nil //nolint:nilerr // a refusal is an answer
	}
	return f.of(in.OSDSet).survey(ctx, in)
}

// Create implements activities.OSDSets. Only a CephOSD has pods that somebody must make.
func (f *OSDSets) Create(ctx context.Context, ref activities.OSDSetRef, keys []string) (activities.Created, error) {
	return cephOSD{OSDSets: f, ref: ref}.create(ctx, keys)
}

// Discard implements activities.OSDSets.
func (f *OSDSets) Discard(ctx context.Context, ref activities.OSDSetRef, pods []string) error {
	return cephOSD{OSDSets: f, ref: ref}.discard(ctx, pods)
}

// Note implements activities.OSDSets.
func (f *OSDSets) Note(ctx context.Context, ref activities.OSDSetRef) error {
	return cephOSD{OSDSets: f, ref: ref}.note(ctx)
}

// Remove implements activities.OSDSets.
func (f *OSDSets) Remove(ctx context.Context, ref activities.OSDSetRef, keys []string) error {
	return cephOSD{OSDSets: f, ref: ref}.remove(ctx, keys)
}

// Rehearse implements activities.OSDSets.
func (f *OSDSets) Rehearse(ctx context.Context, in activities.Replacement) (activities.Rehearsal, error) {
	return f.of(in.OSDSet).rehearse(ctx, in)
}

// Replace implements activities.OSDSets.
func (f *OSDSets) Replace(ctx context.Context, in activities.Replacement) error {
	return f.of(in.OSDSet).replace(ctx, in)
}

// Await implements activities.OSDSets.
func (f *OSDSets) Await(
	ctx context.Context, in activities.AwaitInput, beat func(activities.Arrival),
) (activities.Arrival, error) {
	return f.of(in.OSDSet).await(ctx, in, beat)
}

// Confirm implements activities.OSDSets.
func (f *OSDSets) Confirm(ctx context.Context, in activities.AwaitInput) error {
	return f.of(in.OSDSet).confirm(ctx, in)
}

// Report implements activities.OSDSets. Only a CephOSD has a status; of a restart Temporal and `lockkeeper status` tell
// how it goes.
func (f *OSDSets) Report(ctx context.Context, in activities.OSDSetReport) error {
	return cephOSD{OSDSets: f, ref: in.OSDSet}.report(ctx, in)
}

// policy finds the MaintenancePolicy of a set: the one that it names, or the only one of its namespace.
func (f *OSDSets) policy(ctx context.Context, namespace, name string) (storage.ClusterKey, *input.Error, error) {
	var list v1alpha1.MaintenancePolicyList
	if err := f.api.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return storage.ClusterKey{}, nil, err
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Name == name {
			return storage.ClusterKey{Namespace: namespace, Name: name}, nil, nil
		}
		names = append(names, list.Items[i].Name)
	}
	switch {
	case name != "":
		return storage.ClusterKey{},
			input.Wrong("spec.policy", name, "must be a MaintenancePolicy of namespace "+namespace+": "+orNone(names)), nil
	case len(names) == 1:
		return storage.ClusterKey{Namespace: namespace, Name: names[0]}, nil, nil
	case len(names) == 0:
		return storage.ClusterKey{},
			input.Wrong("spec.policy", "",
				"there is no MaintenancePolicy in namespace "+namespace+": without one nothing says how to reach Ceph, and "+
					"nothing guards it"), nil
	default:
		return storage.ClusterKey{}, input.Wrong("spec.policy", "", "must name one of several: "+strings.Join(names, ", ")),
			nil
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "there is none"
	}
	return strings.Join(names, ", ")
}

func (f *OSDSets) nodes(ctx context.Context) (podspec.Nodes, error) { return kube.Hosts(ctx, f.typed) }

func osdName(id int) string { return fmt.Sprintf("osd.%d", id) }

// wrongDomain says that the CRUSH map has no such type. People write types with a capital.
func wrongDomain(field, domain string, types []string) *input.Error {
	known := func(t string) bool { return strings.EqualFold(t, domain) }
	if domain == "" || strings.EqualFold(domain, "osd") || strings.EqualFold(domain, "host") || len(types) == 0 ||
		slices.ContainsFunc(types, known) {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return t == "osd" || t == "host" })
	return input.Wrong(field, domain, "must be OSD, Host, or one of the cluster's failure domain types: "+orNone(others))
}

// errMoved: the set is not what the batch was decided for.
var errMoved = errors.New("the spec is another one by now")
