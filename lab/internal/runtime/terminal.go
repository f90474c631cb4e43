package runtime

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Terminal opens a pseudo terminal: the user's end, and the end that becomes a program's input and output.
func Terminal() (user, program *os.File, err error) {
	user, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			user.Close()
		}
	}()
	if err = unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	return user, program, err
}

// ResizeTerminal tells the program how large its user's window is.
func ResizeTerminal(user *os.File, columns, rows uint16) error {
	return unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
}
