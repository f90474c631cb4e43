// Package fleet is lockkeeper's hand on the pods of OSDs: those that it makes itself from a CephOSD, and those that
// Deployments make, as Rook's do. It satisfies activities.Fleets: it joins what Kubernetes and Ceph say, lets the pure
// packages decide, and carries out what they decided.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Ceph is what is asked of Ceph.
type Ceph interface {
	// OSDs looks at all OSDs; with metadata also at what they said of themselves.
	OSDs(ctx context.Context, key storage.ClusterKey, metadata bool) (cephcluster.OSDs, error)
	// OKToStop answers which of these OSDs may stop together now.
	OKToStop(ctx context.Context, key storage.ClusterKey, osds []int) ([]int, storage.Answer, error)
	// SafeToDestroy answers whether nobody needs their data.
	SafeToDestroy(ctx context.Context, key storage.ClusterKey, osds []int) (storage.Answer, error)
}

// Fleets are all OSDs that can be replaced.
type Fleets struct {
	typed kubernetes.Interface
	api   client.Client
	ceph  Ceph
}

// New makes Fleets. Both clients are of one API server, and api knows the scheme of package kube.
func New(typed kubernetes.Interface, api client.Client, ceph Ceph) *Fleets {
	return &Fleets{typed: typed, api: api, ceph: ceph}
}

// kind is what the two kinds of fleets do differently.
type kind interface {
	survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error)
	rehearse(ctx context.Context, in activities.Replacement) (*input.Error, error)
	// running are those OSDs of a batch that still run as they were, or says why none may be replaced any more.
	running(ctx context.Context, in activities.Replacement) ([]rollout.OSD, storage.Answer, error)
	replace(ctx context.Context, in activities.Replacement) error
	await(ctx context.Context, in activities.AwaitInput, beat func(activities.Arrival)) (activities.Arrival, error)
	confirm(ctx context.Context, in activities.AwaitInput) error
	report(ctx context.Context, in activities.FleetReport) error
}

func (f *Fleets) of(ref activities.FleetRef) kind {
	if ref.Kind == activities.FleetDeployments {
		return deployments{Fleets: f, ref: ref}
	}
	return cephOSD{Fleets: f, ref: ref}
}

// Survey implements activities.Fleets.
func (f *Fleets) Survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error) {
	return f.of(in.Fleet).survey(ctx, in)
}

// Create implements activities.Fleets. Only a CephOSD has pods that somebody must make.
func (f *Fleets) Create(ctx context.Context, ref activities.FleetRef, keys []string) (activities.Created, error) {
	return activities.Created{}, cephOSD{Fleets: f, ref: ref}.create(ctx, keys)
}

// Discard implements activities.Fleets.
func (f *Fleets) Discard(ctx context.Context, ref activities.FleetRef, pods []string) error {
	return cephOSD{Fleets: f, ref: ref}.discard(ctx, pods)
}

// Note implements activities.Fleets.
func (f *Fleets) Note(ctx context.Context, ref activities.FleetRef) error {
	return cephOSD{Fleets: f, ref: ref}.note(ctx)
}

// Remove implements activities.Fleets.
func (f *Fleets) Remove(ctx context.Context, ref activities.FleetRef, keys []string) error {
	return cephOSD{Fleets: f, ref: ref}.remove(ctx, keys)
}

// Rehearse implements activities.Fleets.
func (f *Fleets) Rehearse(ctx context.Context, in activities.Replacement) (*input.Error, error) {
	return f.of(in.Fleet).rehearse(ctx, in)
}

// Spare implements activities.Fleets. What does not run any more, or never served, takes nothing from anybody; for the rest
// Ceph has the last word, and only as long as nothing has happened since the lease was granted: what its manager says is
// seconds old, and the keeper has proved only that it was true then.
func (f *Fleets) Spare(ctx context.Context, in activities.Replacement) ([]rollout.OSD, storage.Answer, error) {
	running, answer, err := f.of(in.Fleet).running(ctx, in)
	if err != nil || !answer.OK {
		return nil, answer, err
	}
	seen, err := f.ceph.OSDs(ctx, in.Cluster, false)
	if err != nil {
		return nil, storage.Answer{}, err
	}
	if seen.Unavailable != "" {
		return nil, storage.Answer{Reason: seen.Unavailable}, nil
	}
	up := map[string]int{}
	for _, o := range seen.OSDs {
		if o.Up {
			up[osdName(o.ID)] = o.ID
		}
	}
	var ask []int
	free := map[string]bool{}
	for _, o := range in.OSDs {
		free[o.Key] = true
	}
	for _, o := range running {
		if id, isUp := up[o.Name]; isUp {
			ask, free[o.Key] = append(ask, id), false
		}
	}
	if len(ask) > 0 {
		if in.Epoch != 0 && seen.ChangeEpoch > in.Epoch {
			return nil, storage.Answer{Reason: "an OSD went up or down since the lease was granted"}, nil
		}
		spared, answer, err := f.ceph.OKToStop(ctx, in.Cluster, ask)
		if err != nil {
			return nil, storage.Answer{}, err
		}
		if !answer.OK && len(running) == len(in.OSDs) && len(ask) == len(running) {
			return nil, answer, nil
		}
		for _, o := range running {
			for _, id := range spared {
				free[o.Key] = free[o.Key] || answer.OK && o.Name == osdName(id)
			}
		}
	}
	var out []rollout.OSD
	for _, o := range in.OSDs {
		if free[o.Key] {
			out = append(out, o)
		}
	}
	return out, storage.Answer{OK: true}, nil
}

// Replace implements activities.Fleets.
func (f *Fleets) Replace(ctx context.Context, in activities.Replacement) error {
	return f.of(in.Fleet).replace(ctx, in)
}

// Await implements activities.Fleets.
func (f *Fleets) Await(ctx context.Context, in activities.AwaitInput, beat func(activities.Arrival)) (activities.Arrival, error) {
	return f.of(in.Fleet).await(ctx, in, beat)
}

// Confirm implements activities.Fleets.
func (f *Fleets) Confirm(ctx context.Context, in activities.AwaitInput) error {
	return f.of(in.Fleet).confirm(ctx, in)
}

// Report implements activities.Fleets.
func (f *Fleets) Report(ctx context.Context, in activities.FleetReport) error {
	return f.of(in.Fleet).report(ctx, in)
}

// policy finds the MaintenancePolicy of a fleet: the one that it names, or the only one of its namespace.
func (f *Fleets) policy(ctx context.Context, namespace, name string) (storage.ClusterKey, *input.Error, error) {
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
		return storage.ClusterKey{}, input.Wrong("spec.policy", name, "must be a MaintenancePolicy of namespace "+namespace+": "+orNone(names)), nil
	case len(names) == 1:
		return storage.ClusterKey{Namespace: namespace, Name: names[0]}, nil, nil
	case len(names) == 0:
		return storage.ClusterKey{}, input.Wrong("spec.policy", "", "there is no MaintenancePolicy in namespace "+namespace+": without one nothing says how to reach Ceph, and nothing guards it"), nil
	default:
		return storage.ClusterKey{}, input.Wrong("spec.policy", "", "must name one of several: "+strings.Join(names, ", ")), nil
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "there is none"
	}
	return strings.Join(names, ", ")
}

// away says, by the name and the hostname of each node that is not simply in service, why its OSDs may not serve.
func (f *Fleets) nodes(ctx context.Context) (hosts map[string]bool, away map[string]string, err error) {
	list, err := f.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	hosts, away = map[string]bool{}, map[string]string{}
	for i := range list.Items {
		n := &list.Items[i]
		host := n.Labels[corev1.LabelHostname]
		if host == "" {
			host = n.Name
		}
		hosts[host] = true
		switch taint := kube.RemovalTaint(n); {
		case n.Spec.Unschedulable:
			away[host] = "node " + n.Name + " is cordoned"
		case taint != "":
			away[host] = "node " + n.Name + " is tainted " + taint
		case !kube.NodeReady(n):
			away[host] = "node " + n.Name + " is not ready"
		}
	}
	return hosts, away, nil
}

func osdName(id int) string { return fmt.Sprintf("osd.%d", id) }

// unit is what may be replaced together with an OSD. Of OSDs that go one at a time several go together if a person said so.
func unit(domain string, maxParallel int, host string, o cephcluster.OSD) string {
	switch strings.ToLower(domain) {
	case "", "osd":
		if maxParallel > 1 {
			return o.Domain
		}
		return ""
	case "host":
		return host
	}
	if u := o.Location[strings.ToLower(domain)]; u != "" {
		return u
	}
	return host
}

// errMoved: the fleet is not what the batch was decided for.
var errMoved = errors.New("the spec is another one by now")
