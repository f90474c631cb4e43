package storageview

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

const osdType = failuredomain.OSDType

// labelling says where the pods have the name of their failure domain.
type labelling struct {
	key        string
	domainType string
}

// value is what a pod of an OSD says about its failure domain.
func (l labelling) value(o *osd, pod *Pod) string {
	if l.domainType == osdType {
		return strconv.Itoa(o.ID)
	}
	return pod.Labels[l.key]
}

// domains describes the failure domains about which there is something to say, in the order of their names.
func domains(in Input, osds []*osd, label labelling, problems *problems) []storage.Domain {
	byName := map[string]*storage.Domain{}
	leaving := map[string]bool{} // a node of it is: the domain may have to be opened
	for _, o := range osds {
		if o.domain == "" {
			continue // a problem, see checkOSDs
		}
		d := byName[o.domain]
		if d == nil {
			d = &storage.Domain{Name: o.domain}
			byName[o.domain] = d
		}
		if in.Proof != nil { // one that was destroyed since then is not expected any more, but its failure domain lost it
			back := returned(o, in.Proof)
			d.Returned, d.Touched = d.Returned || back, d.Touched || back || o.DownAt > in.Proof.ChangeEpoch
		}
		if o.node != nil && (o.node.leaving() || label.domainType == osdType && interested(in.Interest.Nodes, o.node.Name)) {
			leaving[o.domain] = true // each OSD of a node may have to
		}
		if o.expected {
			d.Daemons++
			if o.troubled() {
				d.Troubled = append(d.Troubled, o.daemon())
			}
		}
		for _, pod := range o.pods {
			d.LabelValues = appendNew(d.LabelValues, label.value(o, pod))
		}
	}
	checkLabels(osds, label, problems)

	var described []storage.Domain
	for name, d := range byName {
		if len(d.Troubled) > 0 || d.Touched || leaving[name] || interested(in.Interest.Domains, name) {
			slices.Sort(d.LabelValues)
			described = append(described, *d)
		}
	}
	slices.SortFunc(described, func(a, b storage.Domain) int { return strings.Compare(a.Name, b.Name) })
	return described
}

// returned tells whether data may be placed on an OSD now and was not, or not surely, when it was proved whole. One
// that is down for long is missed from the moment that it is marked in, which leaves no epoch in the map.
func returned(o *osd, proof *storage.CleanProof) bool {
	return o.UpFrom > proof.ChangeEpoch || awaited(o) && o.DownAt <= proof.ChangeEpoch &&
		!slices.Contains(proof.Awaited, o.Name())
}

// awaited tells whether data may be placed on an OSD that is down.
func awaited(o *osd) bool { return o.expected && !bool(o.Up) && bool(o.In) }

// checkLabels compares the pods' labels with CRUSH. To open a failure domain a budget leaves out the pods with its
// label values, so a wrong value would open, or keep, the wrong pods.
func checkLabels(osds []*osd, label labelling, problems *problems) {
	if label.domainType == osdType {
		return // the label is the one that the pod was found by
	}
	owner := map[string]string{} // label value → failure domain
	for _, o := range osds {
		if o.domain == "" {
			continue
		}
		for _, pod := range o.pods {
			value := label.value(o, pod)
			switch {
			case value == "":
				problems.add("no label "+label.key+": pods ", pod.Name)
				continue
			case value != o.domain && crushName(value) != crushName(o.domain):
				problems.add("label "+label.key+" says "+value+", but CRUSH has the OSD in "+label.domainType+" "+
					o.domain+": pods ", pod.Name)
				continue
			}
			if first, taken := owner[value]; !taken {
				owner[value] = o.domain
			} else if first != o.domain {
				problems.add("label "+label.key+" is "+value+" in two failure domains: "+label.domainType+"s ",
					first+" and "+o.domain)
			}
		}
	}
}
