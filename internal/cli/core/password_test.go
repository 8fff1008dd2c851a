package core

import (
	"bufio"
	"context"
	"errors"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/term"
)

// TestPassword asks on a terminal: once it is answered, and once interrupted. The terminal shows what is typed
// afterwards.
func TestPassword(t *testing.T) {
	for _, answer := range []string{"secret", ""} {
		user, terminal, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer user.Close()
		defer terminal.Close()
		before, err := term.GetState(int(terminal.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		go func() {
			if _, err := bufio.NewReader(user).ReadString(':'); err != nil {
				t.Error(err)
			}
			for isHidden := false; !isHidden; { // the question comes first
				state, err := term.GetState(int(terminal.Fd()))
				if err != nil {
					t.Error(err)
					return
				}
				isHidden = *state != *before
			}
			if answer == "" {
				interrupt()
			} else if _, err := user.WriteString(answer + "\n"); err != nil {
				t.Error(err)
			}
		}()
		got, err := Streams{In: terminal, Err: terminal}.AskPassword(ctx, "RUNLEVEL_TEST_PASSWORD", "cosign.key")
		if isInterrupted := errors.Is(err, context.Canceled); string(got) != answer || isInterrupted != (answer == "") {
			t.Errorf("answer %q: got %q, %v", answer, got, err)
		}
		if after, err := term.GetState(int(terminal.Fd())); err != nil || *after != *before {
			t.Errorf("answer %q: the terminal is in another state: %v", answer, err)
		}
	}
}
