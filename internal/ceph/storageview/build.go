package storageview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Build joins the input into a View. Domain.OKToStop is left to the caller, who can ask.
func Build(in Input) storage.View {
	var problems problems
	smallest, labelKey := failureDomain(in, &problems)
	domainType := smallest.Type
	checkFlags(in.Map, &problems)
	osds, nodes := join(in, domainType, &problems)

	view := storage.View{
		At:                in.At,
		FailureDomainType: domainType,
		LabelKey:          labelKey,
		Compromise:        compromise(smallest),
		ChangeEpoch:       in.Map.ChangeEpoch(),
		Shape:             shape(in.Map, domainType),
		Domains:           domains(in, osds, labelling{key: labelKey, domainType: domainType}, &problems),
		Nodes:             describeNodes(in, nodes, domainType, &problems),
		Intolerant:        in.Tree.Intolerant(in.Map.Pools, domainType, in.ToleratedPools),
		Flagged:           in.Map.Noout(),
		Notes:             notes(in.Map),
		Mons:              describeMons(in.Mons, nodes),
		IdleMons:          in.Mons.idle(),
		StrayMons:         in.Mons.stray(),
		Marks:             marks(in, osds),
		MonsMixed:         in.Mons.mixed(),
		Overrides:         overrides(in),
	}
	view.Hosts, view.Gone = FindHosts(in.Tree, slices.Concat(in.Interest.Hosts, hostsOf(in.Interest.Nodes, view.Nodes)))
	if in.Mons.named() {
		view.MonKey = in.Mons.Label
	}
	for _, o := range osds {
		if !o.expected {
			continue
		}
		view.Daemons++
		if o.departed > 0 {
			if view.Departed == nil {
				view.Departed = map[string]int64{}
			}
			view.Departed[o.Name()] = o.departed
		}
		if awaited(o) && len(view.Awaited) < storage.MostAwaited {
			view.Awaited = append(view.Awaited, o.Name())
		}
		if o.Up {
			view.Up++
			if len(o.pods) == 0 {
				view.Podless++
				if o.departed == 0 {
					view.Unseen++
				}
			}
		}
	}
	if len(view.Intolerant) > 0 && smallest.Compromise {
		view.Intolerant = append(view.Intolerant, "the failure domain is the "+domainType+" because "+smallest.Because)
	}
	view.Problems = problems.list()
	return view
}

// failureDomain returns the smallest failure domain and the pod label that carries it.
func failureDomain(in Input, problems *problems) (failuredomain.Smallest, string) {
	smallest, err := in.Tree.Smallest(in.Map.Pools)
	if err != nil {
		problems.add("the failure domain is not known: "+err.Error(), "")
		// The View speaks of the OSDs all the same, and the smallest type is the most careful.
		smallest.Type = failuredomain.OSDType
	}
	if smallest.Type == failuredomain.OSDType {
		return smallest, in.IDLabel
	}
	return smallest, strings.ReplaceAll(in.FailureDomainLabel, "{type}", smallest.Type)
}

// overrides are the pods that a person has let go out of turn and that have not gone yet.
func overrides(in Input) (out []storage.Override) {
	add := func(letGo bool, state storage.PodState, o storage.Override) {
		if letGo && state != storage.PodTerminating && len(out) < storage.MostOverrides {
			out = append(out, o)
		}
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		add(p.LetGo, p.State, storage.Override{Pod: p.Name, UID: p.UID, Daemon: fmt.Sprintf("osd.%d", p.OSD)})
	}
	for _, p := range in.Mons.Pods {
		add(p.LetGo, p.State, storage.Override{Pod: p.Name, UID: p.UID, Daemon: "mon." + p.Mon})
	}
	return out
}

// compromise is View.Compromise.
func compromise(s failuredomain.Smallest) string {
	if !s.Compromise {
		return ""
	}
	return s.Because
}

// interested tells whether the caller asked for a name.
func interested(names []string, name string) bool { return slices.Contains(names, name) }
