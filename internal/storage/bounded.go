package storage

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// This file keeps a View small whatever is wrong with the storage cluster: Temporal refuses a payload of 2 MiB, and a
// keeper that cannot be told what was seen decides nothing any more. What is left out is counted, so that every
// decision that rests on counts stays the same; one that needs names stays on the closed side.

// A View names at most so many.
const (
	MostDomains  = 48
	MostNodes    = 32
	MostTroubled = 64   // daemons
	mostOnNodes  = 1500 // names of daemons of all nodes
	mostOnNode   = 8    // and of one, if they are more
	mostFlagged  = 64
	mostTexts    = 20
	mostText     = 400  // bytes of one text
	mostDeparted = 1000 // by name
	MostAwaited  = 100
)

// Rest counts the daemons that have something to be said of and are not named.
type Rest struct {
	Troubled  int `json:"troubled"`
	Down      int `json:"down,omitempty"`
	Unsettled int `json:"unsettled,omitempty"`
	Uncounted int `json:"uncounted,omitempty"` // down, and their pods are not ready: no budget counts them
	Podless   int `json:"podless,omitempty"`   // without any pod
	// DownBefore: down, and down already at the clean proof that the observer was given. Set for View.Others only: for a
	// domain that is named, Domain.Touched says the same.
	DownBefore int `json:"downBefore,omitempty"`
}

func (r *Rest) add(x Daemon) {
	r.Troubled++
	r.Down += count(x.Down())
	r.Unsettled += count(x.Unsettled())
	r.Uncounted += count(x.Down() && x.Pod != PodReady)
	r.Podless += count(x.Pod == PodNone)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Plus is the sum of both.
func (r Rest) Plus(x Rest) Rest {
	return Rest{
		Troubled: r.Troubled + x.Troubled, Down: r.Down + x.Down, Unsettled: r.Unsettled + x.Unsettled,
		Uncounted: r.Uncounted + x.Uncounted, Podless: r.Podless + x.Podless,
		DownBefore: r.DownBefore + x.DownBefore,
	}
}

// Tally counts all daemons of the domain that have something to be said of, named or not.
func (d Domain) Tally() Rest {
	r := d.Rest
	for _, x := range d.Troubled {
		r.add(x)
	}
	return r
}

// AllDomains are the failure domains that are named, and last, without a name, all others together.
func (v View) AllDomains() []Domain {
	if v.Others == nil {
		return v.Domains
	}
	return append(slices.Clip(v.Domains), *v.Others)
}

// Interest is what must be named before anything else, the most important first.
//
// Where nodes go one after the other, Held are those that jobs empty, Domains those whose turn it is, Nodes those that
// wait, in their order, and Last those that had their turn. Went are those that were open and may not be back, and Over
// those of them that have been away for a whole turn.
type Interest struct {
	Domains, Nodes, Daemons, Hosts []string
	Held, Last, Went, Over         []string
}

// Bounded is the View with at most so many names. Others is nil in a View that is given.
func (v View) Bounded(first Interest) View {
	v.boundDomains(first)
	v.boundTroubled(first)
	v.boundNodes(first)
	v.boundFlagged(first)
	v.Problems, v.Intolerant = texts(v.Problems), texts(v.Intolerant)
	v.Unavailable = Clip(v.Unavailable, mostText)
	return v
}

// boundDomains takes the domains together that are too many.
func (v *View) boundDomains(first Interest) {
	if len(v.Domains) <= MostDomains {
		return
	}
	wanted := slices.Clone(first.Domains)
	for _, name := range first.Nodes {
		n, _ := v.Node(name)
		wanted = append(wanted, n.Domains...)
	}
	rank := ranks(wanted)
	all := slices.Clone(v.Domains)
	slices.SortStableFunc(all, func(a, b Domain) int { return cmp.Compare(rank(a.Name), rank(b.Name)) })
	others := Domain{Merged: len(all) - MostDomains}
	for _, d := range all[MostDomains:] {
		t := d.Tally()
		if !d.Touched {
			t.DownBefore = t.Down - t.Unsettled
		}
		others.Daemons += d.Daemons
		others.Touched, others.Returned = others.Touched || d.Touched, others.Returned || d.Returned
		others.Rest = others.Rest.Plus(t)
	}
	v.Domains, v.Others = all[:MostDomains], &others
	slices.SortFunc(v.Domains, func(a, b Domain) int { return cmp.Compare(a.Name, b.Name) })
}

// boundTroubled counts the daemons that are too many, and names those first that are asked for.
func (v *View) boundTroubled(first Interest) {
	total := 0
	for _, d := range v.Domains {
		total += len(d.Troubled)
	}
	if total <= MostTroubled {
		return
	}
	type at struct{ rank, place, domain, daemon int }
	onNode, byName := ranks(first.Nodes), ranks(first.Daemons)
	var all []at
	for i, d := range v.Domains {
		for j, x := range d.Troubled {
			all = append(all, at{min(onNode(x.Node), byName(x.Name)), j, i, j})
		}
	}
	slices.SortFunc(all, func(a, b at) int { // of those that nobody asked for, the first of every domain come first
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.place, b.place), cmp.Compare(a.domain, b.domain))
	})
	named := map[[2]int]bool{}
	for _, x := range all[:MostTroubled] {
		named[[2]int{x.domain, x.daemon}] = true
	}
	v.Domains = slices.Clone(v.Domains)
	for i := range v.Domains {
		d := &v.Domains[i]
		var kept []Daemon
		for j, x := range d.Troubled {
			if named[[2]int{i, j}] {
				kept = append(kept, x)
			} else {
				d.Rest.add(x)
			}
		}
		d.Troubled = kept
	}
}

// boundNodes leaves nodes out that nobody asked for: none of them is announced, and none counts as emptied.
func (v *View) boundNodes(first Interest) {
	rank := ranks(first.Nodes)
	all := slices.Clone(v.Nodes)
	if len(all) > MostNodes {
		slices.SortStableFunc(all, func(a, b Node) int {
			return cmp.Or(cmp.Compare(rank(a.Name), rank(b.Name)), cmp.Compare(count(!a.Leaving()), count(!b.Leaving())))
		})
		all = all[:MostNodes]
		slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	}
	v.Nodes = all
	names := 0
	for _, n := range all {
		names += len(n.Daemons) + len(n.Down) + len(n.Domains) + len(n.Hosts)
	}
	if names <= mostOnNodes {
		return
	}
	for i := range all {
		n := &all[i]
		if rank(n.Name) == 0 && len(first.Nodes) > 0 {
			continue // the lease's holder is about it
		}
		n.Domains, n.Hosts = clipList(n.Domains), clipList(n.Hosts)
		if len(n.Daemons) > mostOnNode {
			n.MoreDaemons, n.Daemons = len(n.Daemons)-mostOnNode, n.Daemons[:mostOnNode]
		}
		if len(n.Down) > mostOnNode {
			n.MoreDown, n.Down = len(n.Down)-mostOnNode, n.Down[:mostOnNode]
		}
	}
}

// boundFlagged names hosts with a flag that somebody asked for, and a few others.
func (v *View) boundFlagged(first Interest) {
	if len(v.Flagged) <= mostFlagged {
		return
	}
	rank := ranks(first.Hosts)
	others := 0
	v.Flagged = slices.DeleteFunc(slices.Clone(v.Flagged), func(host string) bool {
		if rank(host) < len(first.Hosts) {
			return false
		}
		others++
		return others > mostFlagged
	})
}

// ranks tells where a name stands among names that matter; all others come after them.
func ranks(names []string) func(string) int {
	at := map[string]int{}
	for i, n := range names {
		if _, dup := at[n]; !dup {
			at[n] = i
		}
	}
	return func(name string) int {
		if i, ok := at[name]; ok {
			return i
		}
		return len(names)
	}
}

func clipList(names []string) []string { return names[:min(len(names), mostOnNode)] }

func texts(all []string) []string {
	if len(all) == 0 {
		return all
	}
	out := make([]string, 0, min(len(all), mostTexts))
	for _, s := range all[:min(len(all), mostTexts)] {
		out = append(out, Clip(s, mostText))
	}
	return out
}

// Clip keeps a text within so many bytes.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
}

// Departed remembers, by daemon, a ChangeEpoch. In JSON the daemons of a kind that are numbered are written in short
// when they are many.
type Departed map[string]int64

// departedShort is the field of the short form: for each epoch the daemons' numbers, each as the distance from the one
// before.
const departedShort = "short"

// MarshalJSON implements json.Marshaler.
func (d Departed) MarshalJSON() ([]byte, error) {
	if len(d) <= mostDeparted {
		return json.Marshal(map[string]int64(d))
	}
	byEpoch := map[string]map[int64][]int{} // prefix, epoch
	for name, epoch := range d {
		prefix, id, ok := numbered(name)
		if !ok {
			return json.Marshal(map[string]int64(d))
		}
		if byEpoch[prefix] == nil {
			byEpoch[prefix] = map[int64][]int{}
		}
		byEpoch[prefix][epoch] = append(byEpoch[prefix][epoch], id)
	}
	short := map[string]map[int64]string{}
	for prefix, epochs := range byEpoch {
		short[prefix] = map[int64]string{}
		for epoch, ids := range epochs {
			slices.Sort(ids)
			var b strings.Builder
			last := -1
			for i, id := range ids {
				if i > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(strconv.FormatInt(int64(id-last), 36))
				last = id
			}
			short[prefix][epoch] = b.String()
		}
	}
	return json.Marshal(map[string]any{departedShort: short})
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Departed) UnmarshalJSON(data []byte) error {
	var plain map[string]int64
	if err := json.Unmarshal(data, &plain); err == nil {
		*d = plain
		return nil
	}
	var long map[string]map[string]map[int64]string
	if err := json.Unmarshal(data, &long); err != nil {
		return err
	}
	*d = Departed{}
	for prefix, epochs := range long[departedShort] {
		for epoch, ids := range epochs {
			last := int64(-1)
			for _, gap := range strings.Fields(ids) {
				n, err := strconv.ParseInt(gap, 36, 64)
				if err != nil {
					return err
				}
				last += n
				(*d)[prefix+strconv.FormatInt(last, 10)] = epoch
			}
		}
	}
	return nil
}

func numbered(name string) (prefix string, id int, ok bool) {
	at := strings.LastIndexByte(name, '.') + 1
	id, err := strconv.Atoi(name[at:])
	return name[:at], id, err == nil && id >= 0 && name[at:] == strconv.Itoa(id)
}
