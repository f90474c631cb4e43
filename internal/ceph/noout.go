package ceph

import (
	"context"
	"fmt"
)

// SetNoout keeps Ceph from marking the OSDs of a CRUSH node out when they are down. Repeating it changes nothing.
func (c Client) SetNoout(ctx context.Context, host string) error {
	return c.groupFlags(ctx, "osd set-group", host)
}

// UnsetNoout takes back SetNoout. Repeating it changes nothing.
func (c Client) UnsetNoout(ctx context.Context, host string) error {
	return c.groupFlags(ctx, "osd unset-group", host)
}

func (c Client) groupFlags(ctx context.Context, prefix, host string) error {
	if host == "" {
		return fmt.Errorf("ceph %s: no host is named", prefix)
	}
	return c.run(ctx, groupFlagsCommand{Prefix: prefix, Flags: "noout", Who: []string{host}}, nil)
}
