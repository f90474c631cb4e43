package activities

import (
	"context"
	"strings"

	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// NooutInput names hosts of the storage cluster's topology, or OSDs.
type NooutInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Hosts   []string           `json:"hosts,omitempty"`
	On      bool               `json:"on"`
	// IDs are those hosts whose ID is known, so that one that was renamed is found.
	IDs map[string]int `json:"ids,omitempty"`
}

// NooutResult is what became of a SwitchNoout that the storage cluster answered.
type NooutResult struct {
	// Refused are hosts on which nothing was switched. It was on all others.
	Refused []NooutRefusal `json:"refused,omitempty"`
	// Unsure: an attempt before this one got no answer, and may still be carried out.
	Unsure bool `json:"unsure,omitempty"`
}

// NooutRefusal is a host on which noout could not be switched, and the storage cluster's own words.
type NooutRefusal struct {
	Host   string `json:"host"`
	Reason string `json:"reason"`
}

// SwitchNoout sets or unsets noout on hosts. Doing so twice is the same as once.
func (k *Keeper) SwitchNoout(ctx context.Context, in NooutInput) (out NooutResult, err error) {
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err == nil {
		if in.On {
			out.Refused, err = c.SetNoout(ctx, in.Hosts...)
		} else {
			var hosts []storage.Host
			for _, name := range in.Hosts {
				hosts = append(hosts, storage.Host{Name: name, ID: in.IDs[name]})
			}
			out.Refused, err = c.UnsetNoout(ctx, hosts...)
		}
	}
	if err != nil {
		return NooutResult{}, Unavailable("switch noout on "+strings.Join(in.Hosts, ", "), err)
	}
	out.Unsure = activity.IsActivity(ctx) && activity.GetInfo(ctx).Attempt > 1
	return out, nil
}
