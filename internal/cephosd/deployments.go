package cephosd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// deployments is the set of OSDs that Deployments run, one each, as Rook makes them. To restart one is to annotate
// its pod template, as `kubectl rollout restart` does; which restart it was is written there, too. With an image
// (deployments_image.go) those are restarted that have another one.
type deployments struct {
	*OSDSets
	ref activities.OSDSetRef
}

// Annotations of a restart: on the pod template, which of the restarts it was; on the Deployment, the one after which
// its OSD was seen to serve, and since when that was up before.
const (
	restartAnnotation   = "lockkeeper.io/restarted-at"
	confirmedAnnotation = "lockkeeper.io/restart-confirmed"
)

type restarting struct {
	list   []appsv1.Deployment
	ids    map[string]int
	refuse []*input.Error
	policy *v1alpha1.MaintenancePolicy
	key    storage.ClusterKey
	nodes  podspec.Nodes
}

func (d deployments) look(ctx context.Context) (*restarting, error) {
	r := &restarting{ids: map[string]int{}}
	key, wrong, err := d.OSDSets.policy(ctx, d.ref.Namespace, d.ref.Policy)
	if err != nil {
		return nil, err
	}
	r.key = key
	if wrong != nil {
		r.refuse = append(r.refuse, input.Wrong("namespace", d.ref.Namespace, wrong.Allowed))
		return r, nil //nolint:nilerr // what is wrong is the answer
	}
	r.policy = &v1alpha1.MaintenancePolicy{}
	if err := d.api.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, r.policy); err != nil {
		return nil, err
	}
	if r.nodes, err = d.nodes(ctx); err != nil {
		return nil, err
	}
	return r, d.list(ctx, r)
}

// list reads the Deployments, and finds out which of them cannot be restarted.
func (d deployments) list(ctx context.Context, r *restarting) error {
	list, err := d.typed.AppsV1().Deployments(d.ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: d.ref.Selector})
	if err != nil {
		return err
	}
	r.list, r.refuse = list.Items, nil
	refuse := func(allowed string) { r.refuse = append(r.refuse, input.Wrong("selector", d.ref.Selector, allowed)) }
	if len(r.list) == 0 {
		refuse("selects no Deployment in namespace " + d.ref.Namespace)
	}
	for i := range r.list {
		id, wrong := kube.OSDOf(&r.list[i], r.policy)
		if wrong != "" {
			refuse(wrong)
		}
		r.ids[r.list[i].Name] = id
		if d.takenBack(&r.list[i]) {
			r.refuse = append(r.refuse, d.somebodyElse(&r.list[i]))
		}
	}
	return nil
}

func (d deployments) survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error) {
	r, err := d.look(ctx)
	if err != nil {
		return activities.Survey{}, err
	}
	out := activities.Survey{
		Found: true, Cluster: r.key, Template: d.ref.Name, Refused: errorsOf(r.refuse),
		Rules: activities.OSDSetRules{ProgressDeadline: cmp.Or(d.ref.ProgressDeadline, activities.DefaultProgressDeadline)},
	}
	if len(out.Refused) > 0 {
		return out, nil
	}
	seen, err := d.ceph.OSDs(ctx, r.key, false)
	if err != nil {
		return activities.Survey{}, err
	}
	if out.Unavailable = seen.Unavailable; out.Unavailable != "" {
		return out, nil
	}
	if wrong := wrongDomain("updateDomain", d.ref.UpdateDomain, seen.Types); wrong != nil {
		out.Refused = errorsOf([]*input.Error{wrong})
		return out, nil
	}
	osds := d.osds(r, seen)
	decision := rollout.Input{OSDs: osds, DomainType: seen.DomainType, MaxParallel: d.ref.MaxParallel, Skip: in.Skip}
	decision.Canary = in.CanaryOf != d.ref.Name && d.isNew(r, osds)
	out.Next, out.Counts.Counts, out.Counted, out.Excused = rollout.Next(decision), rollout.Count(decision), true,
		rollout.Excused(decision)
	if out.CanaryLife, err = d.life(ctx, r, seen, osds, in.Canary); err != nil {
		return out, err
	}
	out.CanaryTrouble, err = d.troubleOf(ctx, r, seen, in.Canary)
	return out, err
}

// life tells one run of an OSD's daemon from the next; "" as long as it does not serve.
func (d deployments) life(
	ctx context.Context, r *restarting, seen cephcluster.OSDs, osds []rollout.OSD, key string,
) (string, error) {
	at := slices.IndexFunc(osds, func(o rollout.OSD) bool { return o.Key == key && o.Serves })
	if key == "" || at < 0 {
		return "", nil
	}
	pods, err := d.pods(ctx, r, []string{key})
	if err != nil {
		return "", err
	}
	for _, o := range seen.OSDs {
		for i := range pods {
			if p := &pods[i]; o.ID == r.ids[key] && p.DeletionTimestamp == nil && podspec.Trouble(p) == "" {
				return lifeOf(p, o.UpFrom), nil
			}
		}
	}
	return "", nil
}

// pods are those of some Deployments.
func (d deployments) pods(ctx context.Context, r *restarting, keys []string) ([]corev1.Pod, error) {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = strconv.Itoa(r.ids[key])
	}
	selector := fmt.Sprintf("%s in (%s)", kube.IDLabel(r.policy), strings.Join(ids, ","))
	list, err := d.typed.CoreV1().Pods(d.ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// osds is the set as a decision sees it. A Deployment that is scaled to zero is left as it is.
func (d deployments) osds(r *restarting, seen cephcluster.OSDs) (out []rollout.OSD) {
	byID := map[int]cephcluster.OSD{}
	for _, o := range seen.OSDs {
		byID[o.ID] = o
	}
	for i := range r.list {
		x := &r.list[i]
		if x.Spec.Replicas != nil && *x.Spec.Replicas == 0 {
			continue
		}
		id := r.ids[x.Name]
		in := byID[id]
		o := rollout.OSD{Key: x.Name, Name: osdName(id), Host: hostOf(x), Domain: in.Domain, Up: in.Up, Unheard: in.Unheard}
		o.Unit = rollout.UnitOf(d.ref.UpdateDomain, d.ref.MaxParallel, o, in.Location)
		o.Serves = kube.OSDAvailable(x) && in.Up
		switch {
		case !d.done(x):
			o.State = rollout.OutOfDate
		case x.Annotations[confirmedAnnotation] == d.ref.Name, !d.restarted(x) && o.Serves:
			o.State = rollout.UpToDate
		default:
			o.Serves = o.Serves && in.UpFrom > epochOf(x)
			if o.State = rollout.Unready; o.Serves {
				o.State = rollout.Ready
			}
		}
		if !o.Serves {
			o.Away = r.nodes[o.Host]
		}
		out = append(out, o)
	}
	return out
}

// restarted tells whether this restart changed the Deployment.
func (d deployments) restarted(x *appsv1.Deployment) bool {
	return x.Spec.Template.Annotations[restartAnnotation] == d.ref.Name
}

// done tells whether the Deployment is as this restart wants it. Somebody else may have given it the image.
func (d deployments) done(x *appsv1.Deployment) bool {
	if d.ref.Image != "" {
		return kube.DaemonImage(&x.Spec.Template.Spec) == d.ref.Image
	}
	return d.restarted(x)
}

func epochOf(x *appsv1.Deployment) int64 {
	epoch, err := strconv.ParseInt(x.Annotations[UpFromAnnotation], 10, 64)
	if err != nil {
		return -1
	}
	return epoch
}

// hostOf is the only host where a Deployment's pod can run, "" if there are several.
func hostOf(x *appsv1.Deployment) string {
	return kube.PodNode(&corev1.Pod{Spec: x.Spec.Template.Spec})
}

func (d deployments) running(ctx context.Context, in activities.Replacement) (standing, storage.Answer, error) {
	r, err := d.look(ctx)
	if err != nil {
		return standing{}, storage.Answer{}, err
	}
	if len(r.refuse) > 0 {
		return standing{}, storage.Answer{Reason: r.refuse[0].Allowed}, nil
	}
	old := map[string]bool{}
	for i := range r.list {
		old[r.list[i].Name] = !d.done(&r.list[i])
	}
	var out []rollout.OSD
	for _, o := range in.OSDs {
		if old[o.Key] {
			out = append(out, o)
		}
	}
	return standing{running: out}, storage.Answer{OK: true}, nil
}

func (d deployments) replace(ctx context.Context, in activities.Replacement) error {
	seen, err := d.ceph.OSDs(ctx, in.Cluster, false)
	if err != nil {
		return err
	}
	upFrom := map[string]int64{}
	for _, o := range seen.OSDs {
		upFrom[osdName(o.ID)] = o.UpFrom
	}
	for _, o := range in.OSDs {
		x, err := d.typed.AppsV1().Deployments(d.ref.Namespace).Get(ctx, o.Key, metav1.GetOptions{})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil || d.done(x) {
			continue
		}
		before := map[string]string{UpFromAnnotation: strconv.FormatInt(upFrom[o.Name], 10)}
		if err := unlessAnother(d.write(ctx, x, before, d.change(x), metav1.PatchOptions{})); err != nil {
			return err
		}
	}
	return nil
}

// change is that of a Deployment's template: it lets its pod go, and another one come.
func (d deployments) change(x *appsv1.Deployment) *corev1.PodTemplateSpec {
	out := &corev1.PodTemplateSpec{}
	out.Annotations = map[string]string{restartAnnotation: d.ref.Name}
	if d.ref.Image != "" {
		out.Spec = withImage(&x.Spec.Template.Spec, d.ref.Image)
	}
	return out
}

// write changes a Deployment's own annotations, and its template; nil: not that.
func (d deployments) write(
	ctx context.Context, x *appsv1.Deployment, own map[string]string, template *corev1.PodTemplateSpec,
	o metav1.PatchOptions,
) error {
	metadata := map[string]any{"uid": x.UID}
	if own != nil { // null would take all annotations away
		metadata["annotations"] = own
	}
	patch := map[string]any{"metadata": metadata}
	if template != nil {
		patch["spec"] = map[string]any{"template": fields(template)}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	o.FieldManager = kube.FieldOwner
	_, err = d.typed.AppsV1().Deployments(x.Namespace).Patch(ctx, x.Name, types.StrategicMergePatchType, text, o)
	return err
}

// unlessAnother forgives that there is no such Deployment any more: one of that name with another UID is another one.
func unlessAnother(err error) error {
	if isGone(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

// fields are those of a template that are to be changed.
func fields(t *corev1.PodTemplateSpec) map[string]any {
	named := func(containers []corev1.Container) []map[string]string {
		var out []map[string]string
		for i := range containers {
			out = append(out, map[string]string{"name": containers[i].Name, "image": containers[i].Image})
		}
		return out
	}
	out := map[string]any{"metadata": map[string]any{"annotations": t.Annotations}}
	spec := map[string]any{}
	for field, containers := range map[string][]corev1.Container{
		"initContainers": t.Spec.InitContainers, "containers": t.Spec.Containers,
	} {
		if len(containers) > 0 {
			spec[field] = named(containers)
		}
	}
	if len(spec) > 0 {
		out["spec"] = spec
	}
	return out
}

func (d deployments) confirm(ctx context.Context, in activities.AwaitInput) error {
	r, err := d.look(ctx)
	if err != nil {
		return err
	}
	for i := range r.list {
		x := &r.list[i]
		if !slices.Contains(in.Keys, x.Name) || !d.restarted(x) {
			continue
		}
		served := map[string]string{confirmedAnnotation: d.ref.Name}
		if err := unlessAnother(d.write(ctx, x, served, nil, metav1.PatchOptions{})); err != nil {
			return err
		}
	}
	return nil
}
