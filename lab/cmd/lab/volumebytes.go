package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/longhorn"
)

func newVolumeRead() *cobra.Command {
	return volumeBytes("read VOLUME", "Print all bytes of a volume that is attached",
		func(cmd *cobra.Command, volume *io.SectionReader, _ io.WriterAt) error {
			_, err := io.CopyBuffer(onlyWriter{cmd.OutOrStdout()}, volume, make([]byte, blockSize))
			return err
		})
}

func newVolumeWrite() *cobra.Command {
	return volumeBytes("write VOLUME", "Write the standard input to a volume that is attached, from its beginning on",
		func(cmd *cobra.Command, volume *io.SectionReader, to io.WriterAt) error {
			// One byte more than fits is read, so that nothing is cut off without a word.
			input := io.LimitReader(cmd.InOrStdin(), volume.Size()+1)
			written, err := io.CopyBuffer(onlyWriter{io.NewOffsetWriter(to, 0)}, input, make([]byte, blockSize))
			if err == nil && written > volume.Size() {
				err = fmt.Errorf("the volume has only %d bytes", volume.Size())
			}
			return err
		})
}

// blockSize is how much is read or written at once.
const blockSize = 128 << 10

// onlyWriter hides whatever else a writer can do, so that io.CopyBuffer takes the buffer that it is given.
type onlyWriter struct{ io.Writer }

// volumeBytes makes a command that reads or writes a volume at the socket of its engine.
func volumeBytes(use, short string, do func(*cobra.Command, *io.SectionReader, io.WriterAt) error) *cobra.Command {
	return volumeCommand(use, short, 1,
		func(ctx context.Context, cmd *cobra.Command, api *longhorn.API, args []string) error {
			v, err := api.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if v.Node() == "" {
				return fmt.Errorf("volume %s is not attached", v.Name)
			}
			size, err := strconv.ParseInt(v.Size, 10, 64)
			if err != nil {
				return fmt.Errorf("size of volume %s: %w", v.Name, err)
			}
			name, err := cmd.Flags().GetString("name")
			if err != nil {
				return err
			}
			inst, err := instance.Locate(name)
			if err != nil {
				return err
			}
			socket, err := longhorn.OpenSocket(longhorn.SocketPath(inst.NodeDisk(v.Node()), v.Name))
			if err != nil {
				return err
			}
			defer socket.Close()
			return do(cmd, io.NewSectionReader(socket, 0, size), socket)
		})
}
