package cephmon

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// joinTimeout is how long a newcomer may take from its start until it is in quorum: making its store, the volume's
// mount, two elections and the copy of what the others know. Ceph's own periods take 8 s on a small cluster.
const joinTimeout = 10 * time.Minute

// Look reads everything that the next decision is made of. Who lives is proved by a commit.
func (m *Mons) Look(ctx context.Context, ref Ref, memory Memory) (monplan.Seen, error) {
	w, err := m.read(ctx, ref)
	if err != nil {
		return monplan.Seen{}, err
	}
	seen, err := m.look(ctx, w, memory)
	if err != nil {
		return seen, err
	}
	return m.judged(ctx, w, seen, true)
}

func (m *Mons) look(ctx context.Context, w *world, memory Memory) (monplan.Seen, error) {
	s := monplan.Seen{
		Mode: memory.Mode, Failed: memory.Failed, Endpoints: w.endpointNames(), Nodes: w.planNodes(), Elsewhere: w.rook,
		Ending: memory.Ending,
	}
	var err error
	if s.Want, err = w.want(); err != nil {
		return s, err
	}
	q, err := m.proved(ctx, w)
	if err != nil {
		s.Unproved = err.Error()
	}
	if err := m.readVolumes(ctx, w, q); err != nil {
		return s, err
	}
	s.Now = time.Now()
	s.Mons, w.addresses, w.release = w.mons(q), map[string]string{}, q.MonMap.MinRelease
	for _, mon := range q.MonMap.Mons {
		w.addresses[mon.Name] = mon.Address()
	}
	if s.Unproved == "" {
		s.Addresses = addressesOf(q)
		s.Addresses = append(s.Addresses, monplan.Left(w.lastAddresses(), s.Addresses, s.Now)...)
		memory.OutSince = monplan.Timers(memory.OutSince, s.Mons, s.Now)
	}
	for i := range s.Mons {
		s.Mons[i].OutSince = memory.OutSince[s.Mons[i].Name]
	}
	s.NextID = w.nextID(s.Mons, memory.NextID)
	if memory.Work != nil {
		if w.service, err = m.hasService(ctx, w, memory.Work.Newcomer); err != nil {
			return s, err
		}
		s.Work = w.work(*memory.Work, s.Want.Template)
	}
	s.Strays = w.strays(memory.Work)
	return s, nil
}

func (m *Mons) proved(ctx context.Context, w *world) (ceph.QuorumStatus, error) {
	c, err := m.ceph(ctx, storage.ClusterKey{Namespace: w.policy.Namespace, Name: w.policy.Name})
	if err != nil {
		return ceph.QuorumStatus{}, err
	}
	return c.ProvedQuorum(ctx)
}

func (w *world) want() (monplan.Want, error) {
	spec := &w.set.Spec
	hash, err := w.set.TemplateHash()
	want := monplan.Want{
		Generation: w.set.Generation, Count: int(spec.Count), Storage: map[string]monplan.Storage{},
		MultiplePerNode: spec.AllowMultiplePerNode, HostNetwork: spec.PodTemplate.HostNetwork, Template: hash,
		DataDir:       spec.DataDirHostPath,
		HealthTimeout: spec.HealthTimeout.Duration, JoinTimeout: joinTimeout,
		AllowQuorumLoss: w.policy.Spec.Ceph.AllowMonQuorumLoss,
	}
	want.Storage[""] = w.storage(w.set.Storage(""))
	for _, zone := range spec.Zones {
		want.Zones = append(want.Zones, zone.Name)
		want.Storage[zone.Name] = w.storage(w.set.Storage(zone.Name))
	}
	return want, err
}

// storage leaves out the class where the spec leaves it to Kubernetes: which class was the default when a claim was
// made does not make its mon different.
func (w *world) storage(s monspec.Storage) monplan.Storage {
	out := monplan.Storage{Claim: s.Claim}
	if s.Class != nil {
		out.Class = *s.Class
	}
	return out
}

func (w *world) planNodes() (out []monplan.Node) {
	for i := range w.nodes {
		n := &w.nodes[i]
		why := ""
		switch {
		case n.Spec.Unschedulable:
			why = "is cordoned"
		case !kube.NodeReady(n):
			why = "is not ready"
		case !w.set.Allows(n):
			why = "is not allowed by spec.placement"
		}
		passing := !n.Spec.Unschedulable && !kube.NodeReady(n) && w.set.Allows(n)
		out = append(out, monplan.Node{Name: n.Name, Zone: w.zone(n), Why: why, Passing: passing, IP: nodeIP(n)})
	}
	return out
}

// mons are those of the monmap, with what Kubernetes has of them.
func (w *world) mons(q ceph.QuorumStatus) (out []monplan.Mon) {
	alive := map[string]bool{}
	for _, name := range q.QuorumNames {
		alive[name] = true
	}
	for _, in := range q.MonMap.Mons {
		mon := monplan.Mon{Name: in.Name, Alive: alive[in.Name]}
		d := w.deployment(w.isMon(in.Name))
		mon.Node, mon.Unheard = w.nodeOf(in.Name), w.unheard(in.Name)
		if d != nil {
			mon.MadeFor = d.Annotations[monspec.ZoneAnnotation]
			if made := d.Annotations[monspec.AddressAnnotation]; made != "" && made != in.Address() {
				mon.Alive = false // who serves under this name is another one
			}
			if mon.Template = d.Spec.Template.Annotations[monspec.TemplateAnnotation]; mon.Template != "" {
				mon.Renewing = !w.renewed(in.Name, mon.Template)
			} else {
				mon.Template = w.adopted(in.Name, d)
			}
			mon.Bound = w.storeNode(d) != ""
		}
		last := w.lastNode(in.Name)
		mon.NodeGone = mon.Node != "" && w.node(mon.Node) == nil
		mon.Zone, mon.Drain = w.zone(w.node(last)), w.drain(last)
		if d != nil && mon.MadeFor == "" {
			mon.MadeFor = cmp.Or(w.home(in.Name, last), mon.Zone)
		}
		if d != nil {
			mon.Storage = w.storageOf(d, cmp.Or(mon.MadeFor, mon.Zone))
			mon.Bound = mon.Bound || !mon.Storage.Claim
			mon.Fixed = w.fixed(in.Name, d)
		} else {
			mon.RunBy = w.runBy(in.Name)
		}
		out = append(out, mon)
	}
	return out
}

// adopted is the template that the spec had when a mon was first seen that lockkeeper has not made. One that has not
// been seen before came under the template of now, and so did one to which somebody has given the spec's image since.
func (w *world) adopted(mon string, d *appsv1.Deployment) string {
	now, _ := w.set.TemplateHash() // without one nothing is decided
	if w.set.IsAsSpec(d) {
		return now
	}
	for _, m := range w.cephMon.Status.Mons {
		if m.Name == mon && m.Adopted != "" {
			return m.Adopted
		}
	}
	return now
}

// nodeOf is the node of a mon: where its pod runs, or the only one where it could.
func (w *world) nodeOf(mon string) string {
	if pod := w.pod(w.isMon(mon)); pod != nil {
		if node := cmp.Or(pod.Spec.NodeName, w.boundTo(pod.Spec)); node != "" {
			return node
		}
	}
	if d := w.deployment(w.isMon(mon)); d != nil {
		return w.storeNode(d)
	}
	return ""
}

// lastNode is the node of a mon, or while its pod has none the one that it had last: its pod on the way out is there,
// or the status has it. A mon on a claim that a drain has evicted may wait for a node for as long as the drain takes.
func (w *world) lastNode(mon string) string {
	if node := w.nodeOf(mon); node != "" {
		return node
	}
	for i := range w.pods {
		if p := &w.pods[i]; w.isMon(mon)(p.Labels) && p.DeletionTimestamp != nil && p.Spec.NodeName != "" {
			return p.Spec.NodeName
		}
	}
	for _, m := range w.cephMon.Status.Mons {
		if m.Name == mon {
			return m.Node
		}
	}
	return ""
}

// home is the zone in which a mon that others have made was first seen on its node; "": it was not seen there before.
func (w *world) home(mon, node string) string {
	for _, m := range w.cephMon.Status.Mons {
		if zone, known := strings.CutPrefix(m.Home, w.set.Label()+"="); known && m.Name == mon && m.Node == node {
			return zone
		}
	}
	return ""
}

// storageOf is what an existing mon has. Its class counts only where the spec names one.
func (w *world) storageOf(d *appsv1.Deployment, zone string) monplan.Storage {
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		s := monplan.Storage{Claim: true}
		named := w.set.Storage(zone).Class != nil
		if c := w.claim(v.PersistentVolumeClaim.ClaimName); c != nil && c.Spec.StorageClassName != nil && named {
			s.Class = *c.Spec.StorageClassName
		}
		return s
	}
	return monplan.Storage{}
}

// drain is the job that has the lease for a node, or that waits for it while somebody else empties the node.
func (w *world) drain(node string) string {
	if node == "" {
		return ""
	}
	l := w.policy.Status.Lease
	for _, holder := range l.Holders {
		if holder.Node == node {
			return holder.WorkflowID
		}
	}
	for _, waits := range l.Queue {
		if waits.Node == node && waits.Observing { // its node is emptied with or without the lease
			return waits.WorkflowID
		}
	}
	return ""
}

// nextID is beyond every name that was ever given, as far as anything tells of it.
func (w *world) nextID(mons []monplan.Mon, next int) int {
	given := func(name string) {
		if id, known := monplan.NumberOf(name); known {
			next = max(next, id+1)
		}
	}
	if id, err := strconv.Atoi(w.endpoints.Data["maxMonId"]); err == nil { // Rook's
		next = max(next, id+1)
	}
	if id := w.cephMon.Status.MaxMonID; id != nil {
		next = max(next, int(*id)+1)
	}
	for _, m := range mons {
		given(m.Name)
	}
	for i := range w.deployments {
		given(w.deployments[i].Spec.Template.Labels[kube.MonLabel])
	}
	for i := range w.claims {
		given(w.claims[i].Labels[kube.MonLabel])
	}
	return next
}

// work is what a step under way has left in the cluster.
func (w *world) work(work monplan.Work, template string) *monplan.Work {
	canary, pod := w.deployment(isCanary(work.Newcomer)), w.pod(isCanary(work.Newcomer))
	work.Canary = canary != nil
	if work.Canary {
		work.Scheduled = pod != nil && running(pod) && w.hears(pod.Spec.NodeName)
		work.Node, work.Zone = "", ""
		if work.Scheduled {
			work.Node = pod.Spec.NodeName
		}
		if work.Scheduled && len(w.set.Spec.Zones) > 0 {
			work.Zone = w.zone(w.node(work.Node))
		}
		work.Claimed = work.Scheduled && w.claimed(work)
	}
	newcomer := w.deployment(w.isMon(work.Newcomer))
	if !work.Canary && newcomer == nil && work.Started.IsZero() && work.Node != "" && !w.hears(work.Node) {
		work.Scheduled, work.Claimed, work.Node, work.Zone = false, false, "", ""
	}
	if work.Running = newcomer != nil; work.Running && work.Started.IsZero() { // whoever made it died before it said so
		work.Started = newcomer.CreationTimestamp.Time
	}
	work.Ending = newcomer == nil && w.ending(work.Newcomer)
	old := w.deployment(w.isMon(work.Old))
	work.Stopped = old == nil
	work.Restarted = old != nil && old.Spec.Template.Annotations[monspec.TemplateAnnotation] == template
	work.Renewed = work.Restarted && w.renewed(work.Old, template)
	if s := w.cephMon.Status.Step; s != nil && s.Mon == work.Newcomer && s.Joined { // of a look whose answer was lost
		work.Joined = true
	}
	claim := w.claim(monspec.ResourceName(work.Newcomer))
	// A claim that is deleted stays while a pod has it: on a node without power for as long as that.
	work.Traces = work.Newcomer != "" && (w.service || claim != nil && claim.DeletionTimestamp == nil)
	return &work
}

// strays are mons with a canary that belongs to no step of this CephMon.
func (w *world) strays(work *monplan.Work) (mons []string) {
	for i := range w.deployments {
		l := w.deployments[i].Spec.Template.Labels
		mon := l[monspec.CanaryLabel]
		if mon == "" || l[monspec.CephMonLabel] != w.set.Name || work != nil && work.Newcomer == mon {
			continue
		}
		mons = append(mons, mon)
	}
	return mons
}

// ending: a pod of the mon is on its way out. On a node that does not answer it stays for as long as that, and is not
// waited for.
func (w *world) ending(mon string) bool {
	return slices.ContainsFunc(w.pods, func(p corev1.Pod) bool { return w.runs(mon, &p) })
}

// renewed: the mon's pod has a template, and none is left that has another one.
func (w *world) renewed(mon, template string) bool {
	now := w.pod(w.isMon(mon))
	return now != nil && running(now) && !slices.ContainsFunc(w.pods, func(p corev1.Pod) bool {
		return w.runs(mon, &p) && p.Annotations[monspec.TemplateAnnotation] != template
	})
}

// hears: there is a node, and it is ready.
func (w *world) hears(node string) bool {
	n := w.node(node)
	return n != nil && kube.NodeReady(n)
}

// unheard is the node of one of a mon's pods that is not ready; "": there is none.
func (w *world) unheard(mon string) string {
	for i := range w.pods {
		p := &w.pods[i]
		if w.isMon(mon)(p.Labels) && w.node(p.Spec.NodeName) != nil && !w.hears(p.Spec.NodeName) {
			return p.Spec.NodeName
		}
	}
	return ""
}

// runs: the pod is one of the mon's, and has not ended, also if it is deleted already.
func (w *world) runs(mon string, p *corev1.Pod) bool {
	ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	return w.isMon(mon)(p.Labels) && !ended && w.hears(p.Spec.NodeName)
}

func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.Spec.NodeName != ""
}

// claimed: the newcomer's claim is bound to a volume for the zone in which the canary runs, or it needs none.
func (w *world) claimed(work monplan.Work) bool {
	if !w.set.Storage(work.Zone).Claim {
		return true
	}
	c := w.claim(monspec.ResourceName(work.Newcomer))
	return c != nil && c.Status.Phase == corev1.ClaimBound && c.DeletionTimestamp == nil &&
		c.Annotations[monspec.ZoneAnnotation] == work.Zone
}
