package core

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// CanAsk reports whether a user sees standard error and can answer.
func (s Streams) CanAsk() bool { return isTerminal(s.In) && isTerminal(s.Err) }

func isTerminal(stream any) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// Ask asks a question on standard error, and reports whether the answer is yes. Anything but yes is no.
func (s Streams) Ask(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(s.Err, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case answer := <-answers:
		return answer == "y" || answer == "yes", nil
	}
}
