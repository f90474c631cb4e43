package activities

import (
	"context"
	"strings"

	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// FlagInput names hosts of the storage cluster's topology, or daemons.
type FlagInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Hosts   []string           `json:"hosts,omitempty"`
	On      bool               `json:"on"`
	// IDs are those hosts whose ID is known, so that one that was renamed is found.
	IDs map[string]int `json:"ids,omitempty"`
}

// FlagResult is what became of a switch that the storage cluster answered.
type FlagResult struct {
	// Refused are hosts on which nothing was switched. It was on all others.
	Refused []FlagRefusal `json:"refused,omitempty"`
	// Unsure: an attempt before this one got no answer, and may still be carried out.
	Unsure bool `json:"unsure,omitempty"`
}

// FlagRefusal is a host on which the flag could not be switched, and the storage cluster's own words.
type FlagRefusal struct {
	Host   string `json:"host"`
	Reason string `json:"reason"`
}

// SwitchNoout sets or unsets the flag on hosts. Doing so twice is the same as once. Histories know it by this name.
func (k *Keeper) SwitchNoout(ctx context.Context, in FlagInput) (out FlagResult, err error) {
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err == nil {
		if in.On {
			out.Refused, err = c.SetFlag(ctx, in.Hosts...)
		} else {
			var hosts []storage.Host
			for _, name := range in.Hosts {
				hosts = append(hosts, storage.Host{Name: name, ID: in.IDs[name]})
			}
			out.Refused, err = c.UnsetFlag(ctx, hosts...)
		}
	}
	if err != nil {
		return FlagResult{}, Unavailable("switch noout on "+strings.Join(in.Hosts, ", "), err)
	}
	out.Unsure = activity.IsActivity(ctx) && activity.GetInfo(ctx).Attempt > 1
	return out, nil
}
