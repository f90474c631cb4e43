package podspec

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
)

// OSD is one that the spec asks for, or that a pod says it is.
type OSD struct {
	Host string `json:"host"`
	Data string `json:"data"`
	DB   string `json:"db,omitempty"`
	WAL  string `json:"wal,omitempty"`
}

// Key is what makes it the same OSD, whatever else changes: host:data.
func (o OSD) Key() string { return o.Host + ":" + o.Data }

// Limits of what is asked for and of what is said about it.
const (
	mostOSDs     = 100_000
	mostRefusals = 64
)

// Desired is which OSDs the spec asks for, sorted by key, and everything in the spec that makes no sense. When there is
// anything, nothing is to be touched: half of a wrong list is not what anybody wants.
func (s Set) Desired() ([]OSD, []*input.Error) {
	d := &desired{byHost: map[string]map[string]string{}}
	for i, storage := range s.Spec.Storage {
		d.add(fmt.Sprintf("spec.storage[%d]", i), storage)
	}
	slices.SortFunc(d.osds, func(a, b OSD) int { return cmp.Compare(a.Key(), b.Key()) })
	refused := append(s.refusals(), d.refused...)
	return d.osds, refused[:min(len(refused), mostRefusals)]
}

type desired struct {
	osds    []OSD
	refused []*input.Error
	byHost  map[string]map[string]string // host → device → the field that named it
}

func (d *desired) refuse(field, value, allowed string) {
	if len(d.refused) < mostRefusals {
		d.refused = append(d.refused, input.Wrong(field, value, allowed))
	}
}

// add forms the product of one element's hosts and OSDs.
func (d *desired) add(path string, storage v1alpha1.Storage) {
	if len(storage.Hosts) == 0 {
		d.refuse(path+".hosts", "", "must name at least one host")
	}
	if len(storage.OSDs) == 0 {
		d.refuse(path+".osds", "", "must name at least one OSD")
	}
	for i, osd := range storage.OSDs {
		if osd.Data == "" {
			d.refuse(fmt.Sprintf("%s.osds[%d].data", path, i), "", "must be the path of a device")
		}
	}
	for i, host := range storage.Hosts {
		field := fmt.Sprintf("%s.hosts[%d]", path, i)
		switch {
		case host == "" || len(validation.IsValidLabelValue(host)) > 0:
			d.refuse(field, host, "must be the value of a node's label kubernetes.io/hostname, at most 63 characters")
		case slices.Contains(storage.Hosts[:i], host):
			d.refuse(field, host, "must be named once in a list")
		case len(d.osds)+len(storage.OSDs) > mostOSDs:
			d.refuse(path, fmt.Sprint(len(d.osds)+len(storage.OSDs)), fmt.Sprintf("must be at most %d OSDs in all", mostOSDs))
			return
		default:
			d.addHost(path, host, storage.OSDs)
		}
	}
}

// addHost adds the OSDs of a host. A device has one use on a host: data, DB or WAL of one OSD.
func (d *desired) addHost(path, host string, osds []v1alpha1.OSDDevices) {
	devices := d.byHost[host]
	if devices == nil {
		devices = map[string]string{}
		d.byHost[host] = devices
	}
	for i, osd := range osds {
		fresh := true
		for _, use := range []struct{ name, device string }{{"data", osd.Data}, {"db", osd.DB}, {"wal", osd.WAL}} {
			if use.device == "" {
				continue
			}
			field := fmt.Sprintf("%s.osds[%d].%s", path, i, use.name)
			if other, taken := devices[use.device]; taken {
				d.refuse(field, use.device, fmt.Sprintf("must have one use on a host, but is %s of %s, too", other, host))
				fresh = false
				continue
			}
			devices[use.device] = field
		}
		if fresh && osd.Data != "" {
			d.osds = append(d.osds, OSD{Host: host, Data: osd.Data, DB: osd.DB, WAL: osd.WAL})
		}
	}
}

// FieldOf is where the spec names a device of a host; spec.storage if it does not.
func (s Set) FieldOf(host, device string) string {
	for i, storage := range s.Spec.Storage {
		if !slices.Contains(storage.Hosts, host) {
			continue
		}
		for j, osd := range storage.OSDs {
			for _, use := range []struct{ name, device string }{{"data", osd.Data}, {"db", osd.DB}, {"wal", osd.WAL}} {
				if use.device != "" && use.device == device {
					return fmt.Sprintf("spec.storage[%d].osds[%d].%s", i, j, use.name)
				}
			}
		}
	}
	return "spec.storage"
}

// UnknownHosts are the hosts of the spec that are no nodes, given the values of the nodes' labels
// kubernetes.io/hostname. Unlike what Desired refuses they concern nobody else: the node may have been deleted since,
// and the OSDs of other hosts still want their pods.
func (s Set) UnknownHosts(nodes sets.Set[string]) (refused []*input.Error) {
	for i, storage := range s.Spec.Storage {
		for j, host := range storage.Hosts {
			if !nodes.Has(host) && len(refused) < mostRefusals {
				refused = append(refused, input.Wrong(fmt.Sprintf("spec.storage[%d].hosts[%d]", i, j), host,
					"must be a node: the value of its label kubernetes.io/hostname; `kubectl get nodes -L kubernetes.io/hostname` "+
						"lists them"))
			}
		}
	}
	return refused
}
