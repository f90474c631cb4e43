package ceph

import "context"

// OSDMetadata is what an OSD told of itself when it last started. All of it is text, and what it did not know is
// missing.
type OSDMetadata struct {
	ID int `json:"id"`
	// Hostname is that of its machine, or of its pod; the environment variable NODE_NAME overrides both.
	Hostname string `json:"hostname"`
	// PodName is the environment variable POD_NAME.
	PodName string `json:"pod_name"`
	// Data is where its store is: --osd-data, which is a folder.
	Data string `json:"osd_data"`
	// Version is that of its program: "18.2.7".
	Version string `json:"ceph_version_short"`
}

// MonVersions asks which version each monitor has said that it is of when it last came into quorum, by its name:
// "18.2.7". One that was never in quorum is missing.
func (c Client) MonVersions(ctx context.Context) (map[string]string, error) {
	var all []struct {
		Name    string `json:"name"`
		Version string `json:"ceph_version_short"`
	}
	err := c.run(ctx, monMetadataCommand(), &all)
	out := make(map[string]string, len(all))
	for _, mon := range all {
		if mon.Version != "" {
			out[mon.Name] = mon.Version
		}
	}
	return out, err
}

// OSDMetadata asks the monitors what every OSD told of itself. About 3 kB of JSON for each. It is as old as the OSD's
// last start.
func (c Client) OSDMetadata(ctx context.Context) ([]OSDMetadata, error) {
	var all []OSDMetadata
	err := c.run(ctx, osdMetadataCommand(), &all)
	return all, err
}
