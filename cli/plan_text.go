package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// mostNames is how many pods a line of a plan names.
const mostNames = 6

// Write puts a plan into words.
func (p Plan) Write(w io.Writer) {
	node := p.Input.Node
	fmt.Fprintf(w, "Plan for draining %s. Nothing is changed.\n\n", node)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("Node", "%s, %s", node, describeNode(p.Node))
	p.writeStorage(row)
	row("Pods to evict", "%s", orNone(p.Outlook.Evict))
	for _, warning := range p.Outlook.Warnings {
		row("", "note: %s", warning)
	}
	for _, refused := range p.Outlook.Refused {
		row("", "in the way: %s", refused)
	}
	p.writeNow(row)
	for _, other := range p.Others {
		_ = tw.Flush()
		fmt.Fprintln(w)
		other.writeStorage(row)
		other.writeNow(row)
	}
	_ = tw.Flush()

	fmt.Fprintln(w)
	for i, step := range p.steps() {
		fmt.Fprintf(w, "%d. %s\n", i+1, step)
	}
	fmt.Fprintf(w, "\n%s\n", p.verdict())
	var told []string
	for _, plan := range p.all() {
		for _, u := range plan.Unknown {
			if len(p.Others) > 0 && !slices.Contains(told, u) {
				told = append(told, u)
			} else if len(p.Others) > 0 {
				continue // what all have in common
			}
			fmt.Fprintf(w, "Could not find out %s\n", u)
		}
	}
}

// writeStorage says where the daemons of one storage cluster are.
func (p Plan) writeStorage(row func(name, format string, args ...any)) {
	row("Policy", "%s", p.Policy)
	row("Failure domain", "%s", orUnknown(p.Domain))
	if p.Now != nil && p.Now.View.Compromise != "" {
		row("", "note: it is the %s because %s", p.Now.View.FailureDomainType, p.Now.View.Compromise)
	}
	row("Storage", "%s", orNone(p.Daemons))
	if p.several() {
		row("", "note: each of these OSDs is a failure domain of its own")
	}
}

func (p Plan) writeNow(row func(name, format string, args ...any)) {
	if p.Now == nil {
		s := p.Reported
		row("May drain", "%s, by the keeper's last report: %s", orDash(s.MayDrain), orDash(s.Message))
		if p.kind == storage.Longhorn {
			row("Storage now", "%s instance managers run, by the keeper's last report", orDash(s.Storage.Up))
			return
		}
		row("Storage now", "OSDs %s up, PGs %s clean, by the keeper's last report", orDash(s.Storage.Up),
			orDash(s.Storage.PGs))
		return
	}
	k := p.Now
	row("May drain", "%s: %s", workflows.MayDrain(k.Decision), k.Decision.Message)
	row("Storage now", "%s", describeStorage(k))
	for _, h := range k.Lease.Holders {
		row("Lease", "%s holds %s since %s: %s", h.WorkflowID, h.Domain, when(h.Granted, p.At), h.Reason)
	}
	if wait := describeWait(k, p.flush); wait != "" {
		row("Waits for reports", "%s", wait)
	}
	for _, q := range k.Lease.Queue {
		row("Lease", "%s waits for %s since %s: %s", q.WorkflowID, q.Domain, when(q.Requested, p.At), q.WaitsFor)
	}
	if len(k.Lease.Holders)+len(k.Lease.Queue) == 0 {
		row("Lease", "free")
	}
	for _, n := range k.Flags {
		if !n.Withdrawn {
			row("Noout", "on %s for %s until %s", n.Host, n.Owner, when(n.Expires, p.At))
		}
	}
	if k.Conflict != "" {
		row("Conflict", "%s", k.Conflict)
	}
	if k.Trouble != "" {
		row("Trouble", "%s", k.Trouble)
	}
}

// steps are the phases of DrainNode, with what each would wait for now.
func (p Plan) steps() []string {
	node := p.Input.Node
	cordon := "cordon " + node
	if p.Node.Cordoned {
		cordon += " (it is cordoned already, so it stays so afterwards)"
	}
	back := fmt.Sprintf("wait until %s is Ready and uncordoned, is deleted, or you say `lockkeeper done %s`", node, node)
	if p.Input.UncordonAfterReboot {
		back = fmt.Sprintf("wait until %s has rebooted and is Ready, is deleted, or you say `lockkeeper done %s`; then "+
			"uncordon it", node, node)
	}
	evict := fmt.Sprintf("evict %s as their budgets allow", pods(len(p.Outlook.Evict)))
	for _, plan := range p.all() {
		if plan.several() {
			evict += plan.oneByOne()
		}
	}
	if len(p.Outlook.Refused) > 0 {
		evict += "; it would wait for what is in the way"
	}
	var leases []string
	for _, plan := range p.all() {
		leases = append(leases, plan.leaseStep(len(p.Others) > 0))
	}
	acquire := leases[0]
	if len(p.Others) > 0 {
		acquire = "get all of these leases, in this order; nothing opens before it has all, and one that others wait for " +
			"goes back meanwhile\n   - " + strings.Join(leases, "\n   - ")
	}
	return []string{
		"Resolving: find the storage on " + node,
		"AcquiringLease: " + acquire,
		"Cordoning: " + cordon,
		"Evicting: " + evict,
		"AwaitingNode: " + back,
		"Healing: " + p.healing(),
	}
}

// healing is what a drain waits for at its end.
func (p Plan) healing() string {
	var osds, managers []string
	for _, plan := range p.all() {
		if plan.kind == storage.Longhorn {
			managers = append(managers, plan.where(len(p.Others) > 0))
		} else {
			osds = append(osds, plan.where(len(p.Others) > 0))
		}
	}
	var until []string
	giveBack := "then give the lease back"
	if len(osds) > 0 {
		until = append(until, fmt.Sprintf("the OSDs of %s are up and all PGs are clean", strings.Join(osds, " and ")))
		giveBack = "then unset noout and give the lease back"
	}
	if len(managers) > 0 {
		until = append(until, fmt.Sprintf("the instance manager of %s runs", strings.Join(managers, " and ")))
	}
	if len(p.Others) > 0 {
		giveBack = strings.Replace(giveBack, "lease", "leases", 1)
	}
	return fmt.Sprintf("wait until %s; %s", strings.Join(until, ", and "), giveBack)
}

// where names the failure domain, and its storage cluster if there are several.
func (p Plan) where(several bool) string {
	if several {
		return orUnknown(p.Domain) + " of " + p.Policy
	}
	return orUnknown(p.Domain)
}

// leaseStep says how one lease would be got.
func (p Plan) leaseStep(several bool) string {
	gate := "it would be granted at once"
	switch {
	case p.LeaseUnknown != "":
		gate = "whether it would be granted now is not known"
	case !p.Lease.OK:
		gate = "now it would wait: " + p.Lease.Reason
	}
	indent := "\n   "
	if several {
		indent = "\n     "
	}
	if p.kind == storage.Longhorn {
		attached := "as soon as nothing is attached there"
		if p.detach {
			attached = "as soon as nothing is attached there (what somebody attached by hand is detached)"
		}
		return fmt.Sprintf("get the lease of %s; %s%sthen its instance manager may go %s, and no node that shares a volume "+
			"with it goes meanwhile", p.where(several), gate, indent, attached)
	}
	noout := fmt.Sprintf("then noout is set on the node for at most %s", p.MaintenanceTimeout.Duration)
	if p.several() {
		noout += ", if its OSDs may go together"
	}
	return fmt.Sprintf("get the lease of %s; %s%s%s, and every other failure domain is closed", p.where(several), gate,
		indent, noout)
}

// several tells whether the node is several failure domains.
func (p Plan) several() bool {
	return p.Domain.Type == failuredomain.OSDType && len(p.Daemons) > 1
}

// oneByOne says how the OSDs of a node go that are failure domains of their own.
func (p Plan) oneByOne() string {
	const slowly = "they go one after the other, without noout: each when Ceph has marked those before out " +
		"(mon_osd_down_out_interval) and their data is whole elsewhere"
	var may *storage.Answer
	if p.Now != nil {
		n, _ := p.Now.View.Node(p.Input.Node)
		may = n.OKToStop
	}
	switch all := len(p.Daemons); {
	case may == nil || may.Silence:
		return fmt.Sprintf(".\n   If Ceph says that all %d OSDs may stop together, they go together; otherwise %s", all,
			slowly)
	case may.OK:
		return fmt.Sprintf(".\n   Ceph says that all %d OSDs may stop together, so they go together", all)
	default:
		return fmt.Sprintf(".\n   Ceph does not let all %d OSDs stop together (%s), so %s", all, may.Reason, slowly)
	}
}

func (p Plan) verdict() string {
	if p.Running != nil {
		return "A drain of this node runs already, so none can be started: " + p.Running.Describe(p.At)
	}
	in := func(plan Plan) string {
		if len(p.Others) == 0 {
			return ""
		}
		return " in " + plan.Policy
	}
	for _, plan := range p.all() {
		if plan.LeaseUnknown != "" {
			return "Whether it would have to wait" + in(plan) + " is not known: " + plan.LeaseUnknown
		}
	}
	for _, plan := range p.all() {
		if !plan.Lease.OK {
			return "It would wait" + in(plan) + " before it changes anything: " + plan.Lease.Reason
		}
	}
	if len(p.Outlook.Refused) > 0 {
		return "It would begin at once, but could not evict all pods."
	}
	return "It would begin at once."
}

func describeNode(n activities.NodeState) string {
	if !n.Found {
		return "not found"
	}
	words := []string{"Ready"}
	if !n.Ready {
		words[0] = "not Ready"
	}
	if n.Cordoned {
		words = append(words, "cordoned")
	}
	if n.Tainted != "" {
		words = append(words, "tainted "+n.Tainted)
	}
	return strings.Join(words, ", ")
}

func orUnknown(d storage.FailureDomain) string {
	if d.IsZero() {
		return "an unknown failure domain"
	}
	return d.String()
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return some(names, mostNames)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
