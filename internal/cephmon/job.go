package cephmon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what the job asks: look and decide, foresee, forget. That Mons is what it needs:
var _ activities.Mons = (*Mons)(nil)

// Survey looks, decides what comes next, and writes the status.
func (m *Mons) Survey(ctx context.Context, ref Ref, memory Memory) (activities.MonSurvey, error) {
	w, seen, s, err := m.survey(ctx, ref, memory, true)
	if err != nil || !s.Found {
		return s, err
	}
	return s, m.report(ctx, w, seen, s)
}

// survey is a look, and what it makes of what the job knows. seen is nil if nothing was looked at. asks: an image may
// be asked for its version, which makes a pod.
func (m *Mons) survey(
	ctx context.Context, ref Ref, memory Memory, asks bool,
) (w *world, seen *monplan.Seen, s activities.MonSurvey, err error) {
	w, err = m.read(ctx, ref)
	var wrong *input.Error
	switch {
	case errors.Is(err, activities.ErrNotFound):
		return nil, nil, activities.MonSurvey{}, nil
	case errors.As(err, &wrong):
	case err != nil:
		return nil, nil, s, err
	}
	s = activities.MonSurvey{
		Found: true, Generation: w.cephMon.Generation, OutSince: memory.OutSince, NextID: memory.NextID,
		Cluster: storage.ClusterKey{Namespace: ref.Namespace, Name: w.cephMon.Spec.Policy},
	}
	refused := w.set.Refusals()
	if wrong != nil {
		refused = append(refused, wrong)
	}
	if memory = w.begin(&s, memory, refused); len(refused) > 0 {
		return w, nil, s, nil
	}
	look, err := m.look(ctx, w, memory)
	if err != nil {
		return nil, nil, s, err
	}
	s.Step, s.NextID, s.OutSince, s.Counts = monplan.Next(look), look.NextID, outSince(look), counts(look)
	world, err := m.against(ctx, w, look)
	if err != nil {
		return nil, nil, s, err
	}
	refused, s.Warnings = w.set.Against(world)
	s.Warnings = append(append(s.Warnings, w.otherImages(look)...), runByOthers(look)...)
	if begins := look.Work == nil; begins && look.Unproved == "" && !healing(s.Step) {
		s.Refused = values(refused)
	}
	if len(s.Refused) > 0 { // the status must not tell the next job of a step that never began
		s.Step = monplan.Step{Verdict: monplan.Refuse, Why: s.Refused[0].Error()}
		return w, &look, s, nil
	}
	look, err = m.judged(ctx, w, look, asks) // last, since it may make a pod
	s.Step = monplan.Next(look)
	return w, &look, s, err
}

// begin takes up what the job knows. If the spec makes no sense, that is all there is to say: a step that the status
// tells of is not forgotten because the spec was damaged meanwhile.
func (w *world) begin(s *activities.MonSurvey, memory Memory, refused []*input.Error) Memory {
	known := memory.Known
	memory = w.recall(memory)
	if !known {
		s.Work, s.OutSince = memory.Work, memory.OutSince
	}
	if len(refused) > 0 {
		s.Step = monplan.Step{Verdict: monplan.Wait, Why: "the spec to be mended: " + refused[0].Error(), Work: memory.Work}
		if memory.Work == nil {
			s.Refused, s.Step.Verdict = values(refused), monplan.Refuse
		}
	}
	return memory
}

// healing: what the step does is needed whatever else is wrong with the spec. A living mon is not removed then.
func healing(s monplan.Step) bool {
	kinds := []monplan.Kind{monplan.FailOver, monplan.Remove, monplan.TidyUp}
	return s.Takes == "" && slices.Contains(kinds, s.Kind())
}

func values(refused []*input.Error) (out []input.Error) {
	const most = 8
	for _, r := range refused[:min(len(refused), most)] {
		out = append(out, *r)
	}
	return out
}

// recall is the memory of a job that begins: what the job before it wrote into the status.
func (w *world) recall(memory Memory) Memory {
	memory.Mode.Migrate = memory.Mode.Migrate || w.cephMon.Spec.Migrate == v1alpha1.MigrateAutomatic
	if memory.Known {
		return memory
	}
	if memory.OutSince == nil {
		memory.OutSince = map[string]time.Time{}
		for _, mon := range w.cephMon.Status.Mons {
			if mon.OutSince != nil {
				memory.OutSince[mon.Name] = mon.OutSince.Time
			}
		}
	}
	if step := w.cephMon.Status.Step; step != nil && memory.Work == nil {
		memory.Work = w.recalled(*step)
	}
	return memory
}

// recalled is a step as the status tells of it. The status may be older than the last act, or than one that was never
// carried out: a newcomer counts as started if it has a Deployment. Without one it needs a canary again, since nothing
// else tells for which node and zone it was meant.
func (w *world) recalled(s v1alpha1.MonStep) *monplan.Work {
	work := &monplan.Work{
		Kind: monplan.Kind(s.Kind), Newcomer: s.Mon, Old: s.Replaces, Generation: s.Generation, Joined: s.Joined,
		Undo: s.Undo,
	}
	if work.Kind == monplan.Remove || work.Kind == monplan.Restart || work.Kind == monplan.TidyUp {
		work.Newcomer, work.Old = "", s.Mon
	}
	if d := w.deployment(w.isMon(work.Newcomer)); d != nil {
		work.Started = d.CreationTimestamp.Time
		if s.Started != nil {
			work.Started = s.Started.Time
		}
	}
	return work
}

func outSince(s monplan.Seen) map[string]time.Time {
	out := map[string]time.Time{}
	for _, mon := range s.Mons {
		if !mon.OutSince.IsZero() {
			out[mon.Name] = mon.OutSince
		}
	}
	return out
}

func counts(s monplan.Seen) activities.MonCounts {
	c := activities.MonCounts{Mons: len(s.Mons), Wanted: s.Want.Count, AsSpec: len(s.Mons) - len(s.Different())}
	for _, mon := range s.Mons {
		if mon.Alive && s.Unproved == "" {
			c.InQuorum++
		}
	}
	return c
}

// against is the world with which the spec is compared.
func (m *Mons) against(ctx context.Context, w *world, s monplan.Seen) (monspec.World, error) {
	out := monspec.World{Nodes: w.nodes, Others: w.others, New: max(s.Want.Count-len(s.Mons), 0)}
	different := map[string]bool{}
	for _, d := range s.Different() {
		different[d.Mon] = true
	}
	if s.Mode.Migrate {
		out.New += len(different)
	}
	for _, mon := range s.Mons {
		out.Mons = append(out.Mons, quorum.Mon{Name: mon.Name, Zone: mon.Zone, Alive: mon.Alive})
		if !different[mon.Name] {
			out.Settled = append(out.Settled, cmp.Or(mon.MadeFor, mon.Zone))
		}
	}
	if len(s.Mons) == 0 || !w.wantsClaims() {
		return out, nil
	}
	cached := metav1.ListOptions{ResourceVersion: "0"}
	classes, err := m.typed.StorageV1().StorageClasses().List(ctx, cached)
	if err != nil {
		return out, err
	}
	out.Classes = classes.Items
	if !slices.ContainsFunc(classes.Items, func(c storagev1.StorageClass) bool {
		return c.Provisioner == noProvisioner
	}) {
		return out, nil
	}
	volumes, err := m.typed.CoreV1().PersistentVolumes().List(ctx, cached)
	if err != nil {
		return out, err
	}
	out.Volumes = volumes.Items
	return out, nil
}

// noProvisioner is that of classes whose volumes are made by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// wantsClaims: some mon of the spec has a claim.
func (w *world) wantsClaims() bool {
	spec := &w.set.Spec
	return spec.VolumeClaimTemplate != nil ||
		slices.ContainsFunc(spec.Zones, func(z v1alpha1.MonZone) bool { return z.VolumeClaimTemplate != nil })
}

// Plan foresees a migration. It changes nothing.
func (m *Mons) Plan(ctx context.Context, ref Ref, mode monplan.Mode) (activities.MonPlan, error) {
	w, seen, s, err := m.survey(ctx, ref, Memory{Mode: mode}, false)
	if err == nil && !s.Found {
		err = fmt.Errorf("CephMon %s: %w", ref, activities.ErrNotFound)
	}
	if err != nil || seen == nil {
		return activities.MonPlan{Survey: s}, err
	}
	// Not in the status: nobody would hear when a manager is restarted.
	s.Warnings = append(s.Warnings, w.outOfTouch(*seen)...)
	if w.unasked {
		s.Warnings = append(s.Warnings, w.aboutImage("which version of Ceph it has is asked before any mon gets it, and "+
			"whether these mons can take that"))
	}
	foreseen := *seen
	if foreseen.Work == nil { // what the mons lack, whoever has to mend it
		foreseen.Elsewhere = ""
	}
	p := activities.MonPlan{Survey: s, Course: monplan.Course(foreseen), Elsewhere: seen.Elsewhere}
	different := differences(*seen)
	for _, mon := range seen.Mons {
		p.Mons = append(p.Mons, activities.PlannedMon{
			Name: mon.Name, Node: mon.Node, Zone: mon.Zone, Storage: w.storageText(mon), InQuorum: mon.Alive,
			Different: different[mon.Name],
		})
	}
	return p, nil
}

func differences(s monplan.Seen) map[string]string {
	out := map[string]string{}
	for _, d := range s.Different() {
		out[d.Mon] = d.Why
	}
	return out
}

// Forget deletes canary, Service and claim of a newcomer that has no Deployment. One that has is a mon, and stays.
func (m *Mons) Forget(ctx context.Context, ref Ref, work monplan.Work) error {
	if work.Newcomer == "" {
		return nil
	}
	w := &world{}
	w.set.Namespace, w.set.Name = ref.Namespace, ref.Name
	if err := errors.Join(m.listPods(ctx, ref.Namespace, w), m.listClaims(ctx, ref.Namespace, w)); err != nil {
		return err
	}
	x := act{Mons: m, world: w, work: work}
	if err := x.dropCanary(ctx, work.Newcomer); err != nil {
		return err
	}
	isMon := func(d appsv1.Deployment) bool { return d.Name == monspec.ResourceName(work.Newcomer) }
	if slices.ContainsFunc(w.deployments, isMon) || work.Joined || !work.Started.IsZero() {
		return nil
	}
	if err := x.dropService(ctx, work.Newcomer); err != nil {
		return err
	}
	return x.dropClaim(ctx, x.claim(monspec.ResourceName(work.Newcomer)))
}

// Of names the CephMons of a policy. Where there is no CephMon, or nobody may list them, it names none.
func (m *Mons) Of(ctx context.Context, cluster storage.ClusterKey) ([]Ref, error) {
	names, err := m.cephMons(ctx, cluster)
	out := make([]Ref, 0, len(names))
	for _, name := range names {
		out = append(out, Ref{Namespace: cluster.Namespace, Name: name})
	}
	return out, err
}

func (m *Mons) cephMons(ctx context.Context, cluster storage.ClusterKey) (names []string, err error) {
	var list v1alpha1.CephMonList
	err = m.api.List(ctx, &list, client.InNamespace(cluster.Namespace))
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	for i := range list.Items {
		if list.Items[i].Spec.Policy == cluster.Name {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, err
}

// storageText is where a mon has its store, for people.
func (w *world) storageText(mon monplan.Mon) string {
	d := w.deployment(w.isMon(mon.Name))
	if d == nil {
		return "unknown: it has no Deployment"
	}
	left := w.storeOf(mon.Name)
	if left.Claim == "" {
		return "HostPath " + left.Path
	}
	text := "PVC " + left.Claim
	if c := w.claim(left.Claim); c != nil && c.Spec.StorageClassName != nil {
		text += " of class " + *c.Spec.StorageClassName
	}
	return text
}

// storeOf is where the store of a mon with a Deployment is: its claim, or a path.
func (w *world) storeOf(mon string) v1alpha1.MonStorageLeft {
	left := v1alpha1.MonStorageLeft{Mon: mon}
	d := w.deployment(w.isMon(mon))
	if d == nil {
		return left
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			left.Claim, left.Path = v.PersistentVolumeClaim.ClaimName, ""
			return left
		case v.HostPath != nil && strings.Contains(v.HostPath.Path+"/", "/mon-"+mon+"/"):
			left.Path = v.HostPath.Path
		}
	}
	return left
}
