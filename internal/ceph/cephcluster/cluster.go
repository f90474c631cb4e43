package cephcluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// cluster is one Ceph cluster and the policy under which it is looked at.
type cluster struct {
	kube   Kubernetes
	policy *v1alpha1.MaintenancePolicy
	*connected
}

// connected is what outlives a change of the policy.
type connected struct {
	connection v1alpha1.CephConnection
	line       *line
	client     ceph.Client
	reader     *ceph.Reader
	// broken: a command was refused for lack of rights, or the connection failed; the next caller reads the credentials
	// again.
	broken atomic.Bool
	fsid   atomic.Pointer[string] // of the last reading that counts
	// elsewhere: another cluster answers where this one did.
	elsewhere atomic.Bool

	digested atomic.Pointer[digests] // of the last map that was looked at
	departed departures
	refused  refusal // to tell OSDs to report
	manager  patience
	// unsettled is since when the watch finds that something is out of order, in nanoseconds; 0: it does not.
	unsettled atomic.Int64

	// holds one value while somebody uses what follows; unlike a mutex it can be given up waiting for
	turn      chan struct{}
	watch     witness
	whole     bool      // what the last look of the watch found
	doubted   time.Time // what the tracker proved before does not count
	regex     string    // that tracker was made with
	tolerated []string  // likewise
}

func newCluster(k Kubernetes, conn Conn, p *v1alpha1.MaintenancePolicy) *cluster {
	l := &line{conn: conn}
	client := ceph.Client{Commander: l}
	return &cluster{kube: k, policy: p, connected: &connected{
		connection: p.Spec.Ceph.Connection, line: l, client: client, reader: ceph.NewReader(client),
		turn: make(chan struct{}, 1),
	}}
}

func (c *cluster) with(p *v1alpha1.MaintenancePolicy) *cluster {
	return &cluster{kube: c.kube, policy: p, connected: c.connected}
}

func (c *connected) failed() bool { return c.broken.Load() || c.elsewhere.Load() }

// sameCluster dials once more. What was seen of one cluster says nothing of another: if that is what answers there now,
// the next caller begins from nothing.
func (c *connected) sameCluster(
	ctx context.Context, dial func(context.Context, *v1alpha1.MaintenancePolicy) (Conn, error),
	p *v1alpha1.MaintenancePolicy,
) (Conn, error) {
	conn, err := dial(ctx, p)
	if err != nil {
		return nil, err
	}
	status, err := ceph.Client{Commander: conn}.Status(ctx)
	if known := c.fsid.Load(); err == nil && known != nil && status.FSID != *known {
		c.elsewhere.Store(true)
		err = fmt.Errorf("another cluster answers: %s instead of %s", status.FSID, *known)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Observe implements activities.StorageCluster: Kubernetes and Ceph at the same time, then joined.
func (c *cluster) Observe(ctx context.Context, in activities.Look) (activities.Seen, error) {
	var (
		departed = c.departed.with(in.Departed)
		view     = storageview.Input{
			IDLabel: kube.IDLabel(c.policy), FailureDomainLabel: kube.FailureDomainLabel(c.policy),
			Proof: in.Proof, LastChange: in.LastChange, Departed: departed,
		}
		reading     ceph.Reading
		uncommitted error
	)
	view.ToleratedPools = c.policy.Spec.Ceph.ToleratedPools
	view.Interest = storageview.Interest{Domains: in.Domains, Nodes: in.Nodes, Hosts: in.Hosts}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		view.Pods, view.Mons.Pods, err = c.kube.DaemonPods(gctx, c.policy)
		return wrap(err, "list OSD and mon pods")
	})
	g.Go(func() (err error) { view.Nodes, err = c.kube.StorageNodes(gctx); return wrap(err, "list nodes") })
	g.Go(func() (err error) {
		if in.Commit {
			uncommitted = c.commit(gctx)
		}
		reading, err = c.read(gctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return activities.Seen{}, err
	}
	if reading.Unavailable != "" {
		seen := activities.Seen{View: storage.View{
			At: time.Now().UTC(), Unavailable: reading.Unavailable, Cause: reading.Cause, Silent: reading.Silent.UTC(),
			Departed: c.departed.become(departed, storageview.Departed(view.Pods, departed, in.LastChange)),
		}}
		if in.Hosting {
			seen.Hosting = storageview.HostingByPods(view.Pods, view.Mons.Pods)
		}
		return seen, nil
	}
	if err := c.noteReplacements(ctx, view.Pods, reading.Map); err != nil {
		return activities.Seen{}, err
	}
	view.At, view.Map, view.Tree = time.Now().UTC(), reading.Map, failuredomain.NewTree(reading.Crush)
	q := quorumOf(reading)
	view.Mons.Map, view.Mons.InQuorum, view.Mons.Label = q.Mons, q.In, kube.MonLabel
	seen := activities.Seen{View: storageview.Build(view), ID: reading.Status.FSID}
	if in.Hosting {
		seen.Hosting, seen.Homeless = storageview.Hosting(view)
	}
	if release := reading.Quorum.MonMap.MinRelease; release > 0 {
		seen.View.Version = strconv.Itoa(release)
	}
	seen.View.Committed = in.Commit && uncommitted == nil
	if uncommitted != nil {
		seen.View.Notes = append(seen.View.Notes, fmt.Sprintf(
			"no mon that is in quorum is let go, since the mons do not commit anything: %v", uncommitted))
	}
	if reading.Disconnected.Uncounted {
		seen.View.Notes = append(seen.View.Notes, "whether the monitors hear every OSD is not known: the Ceph user lacks "+
			"the right to ask for features, see deploy/ceph-caps.txt")
	}
	if note := c.flushNote(); note != "" {
		seen.View.Notes = append(seen.View.Notes, note)
	}
	seen.View.Placement, seen.View.Silent = c.digests(reading.Map).placement, reading.Silent.UTC()
	seen.View.Departed = c.departed.become(departed, seen.View.Departed)
	seen.View.Disconnected = disconnected(reading.Disconnected, view.Tree, seen.View.FailureDomainType)
	c.askOKToStop(ctx, &seen.View, view.Tree, reading.Map, in.Domains, in.Nodes)
	return seen, nil
}

// noteReplacements notes on pods that the disk of their OSD is being replaced, which only their Deployment may say. An
// OSD that serves in full is relied on all the same, so while all do the Deployments are not asked.
func (c *cluster) noteReplacements(ctx context.Context, pods []storageview.Pod, m *ceph.OSDMap) error {
	up := map[int]bool{}
	for i := range m.OSDs {
		up[m.OSDs[i].ID] = bool(m.OSDs[i].Up)
	}
	if !slices.ContainsFunc(pods, func(p storageview.Pod) bool { return p.State != storage.PodReady || !up[p.OSD] }) {
		return nil
	}
	replacing, err := c.kube.ReplacingOSDs(ctx, c.policy)
	if err != nil {
		return wrap(err, "list Deployments")
	}
	for i := range pods {
		pods[i].Replacing = pods[i].Replacing || replacing[pods[i].OSD]
	}
	return nil
}

// commit has the mons commit something. Where that is refused all else goes on: what was proved stays, and only the
// line is made anew.
func (c *cluster) commit(ctx context.Context) error {
	err := c.reader.Commit(ctx)
	if ceph.IsDenied(err) {
		c.line.renew()
	}
	return err
}

// read takes a reading. Missing rights are an answer, too: they say why nothing can be known.
func (c *cluster) read(ctx context.Context) (ceph.Reading, error) {
	began := time.Now()
	r, err := c.reader.Read(ctx)
	if err == nil && r.Unavailable != "" && ctx.Err() == nil && time.Since(began) < time.Second {
		// An election in the middle of a reading is over by the next one; no quorum is not.
		r, err = c.reader.Read(ctx)
	}
	if err == nil {
		if r.Unavailable == "" {
			c.fsid.Store(&r.Status.FSID)
		}
		return r, nil
	}
	c.broken.Store(ctx.Err() == nil)
	if why := ceph.Lacks(err); why != "" {
		return ceph.Reading{Unavailable: why, Cause: storage.CauseRights}, nil
	}
	return ceph.Reading{}, err
}

// SetFlag implements activities.StorageCluster.
func (c *cluster) SetFlag(ctx context.Context, hosts ...string) ([]activities.FlagRefusal, error) {
	return eachHost(hosts, func(hosts ...string) error { return c.client.SetNoout(ctx, hosts...) })
}

// UnsetFlag implements activities.StorageCluster. Of a host that Ceph refuses, or may have passed over, the CRUSH map
// tells whether it is gone, which leaves nothing to unset, or what it is called now: the caller's look at it may be
// older than the command.
func (c *cluster) UnsetFlag(ctx context.Context, hosts ...storage.Host) ([]activities.FlagRefusal, error) {
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	refused, err := eachHost(names, func(hosts ...string) error { return c.client.UnsetNoout(ctx, hosts...) })
	if err != nil {
		return nil, err
	}
	suspects := slices.DeleteFunc(slices.Clone(hosts), func(h storage.Host) bool { return !refuses(refused, h.Name) })
	if len(refused) == 0 && len(hosts) > 1 {
		suspects = hosts // of several names Ceph passes over those that it does not know, as long as it knows one
	}
	if len(suspects) == 0 {
		return nil, nil
	}
	reading, err := c.read(ctx)
	switch {
	case err != nil:
		return refused, err
	case reading.Unavailable != "" && len(refused) == 0:
		return nil, fmt.Errorf("whether the hosts are still called %s: %s", strings.Join(names, ", "), reading.Unavailable)
	case reading.Unavailable != "":
		return refused, nil
	}
	tree := failuredomain.NewTree(reading.Crush)
	for _, h := range suspects {
		found, gone := storageview.FindHosts(tree, []storage.Host{h})
		switch {
		case len(gone) > 0:
		case len(found) > 0 && found[0].Name != h.Name:
			if err := c.client.UnsetNoout(ctx, found[0].Name); err != nil {
				return nil, err
			}
		default:
			continue // of one that was refused there is nothing else to say
		}
		refused = slices.DeleteFunc(refused, func(x activities.FlagRefusal) bool { return x.Host == h.Name })
	}
	return refused, nil
}

func refuses(refused []activities.FlagRefusal, host string) bool {
	return slices.ContainsFunc(refused, func(x activities.FlagRefusal) bool { return x.Host == host })
}

// eachHost switches all hosts by one command. When Ceph refuses it, because it knows none of the names, each host gets
// a command of its own, and an answer of its own.
func eachHost(hosts []string, do func(hosts ...string) error) (refused []activities.FlagRefusal, err error) {
	if err = do(hosts...); err == nil || !ceph.IsInvalid(err) {
		return nil, err
	}
	for _, host := range hosts {
		if len(hosts) > 1 {
			err = do(host)
		}
		switch {
		case ceph.IsInvalid(err):
			refused = append(refused, activities.FlagRefusal{Host: host, Reason: err.Error()})
		case err != nil:
			return nil, err
		}
	}
	return refused, nil
}

func quorumOf(r ceph.Reading) activities.Quorum {
	q := activities.Quorum{In: r.Quorum.QuorumNames}
	for _, m := range r.Quorum.MonMap.Mons {
		q.Mons = append(q.Mons, m.Name)
	}
	return q
}

func wrap(err error, what string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
