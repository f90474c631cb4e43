package ceph

import (
	"context"
	"fmt"
	"slices"
)

// SetNoout keeps Ceph from marking OSDs, or those of CRUSH nodes, out when they are down. Repeating it changes nothing.
// All of them in one command are one change that the monitors have to agree on; that takes them a tenth of a second.
func (c Client) SetNoout(ctx context.Context, hosts ...string) error {
	return c.groupFlags(ctx, "osd set-group", hosts)
}

// UnsetNoout takes back SetNoout. Repeating it changes nothing.
func (c Client) UnsetNoout(ctx context.Context, hosts ...string) error {
	return c.groupFlags(ctx, "osd unset-group", hosts)
}

func (c Client) groupFlags(ctx context.Context, prefix string, hosts []string) error {
	if len(hosts) == 0 || slices.Contains(hosts, "") {
		return fmt.Errorf("ceph %s: no host is named", prefix)
	}
	return c.run(ctx, groupFlagsCommand{Prefix: prefix, Flags: "noout", Who: hosts}, nil)
}
