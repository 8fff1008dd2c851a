package live

import (
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/pkg/apply"
)

// framesPerSecond is how often the screen is drawn, however much happens.
const framesPerSecond = 10

// A View keeps the progress of an apply on a terminal. It reads nothing from it, so that Ctrl-C stays a signal,
// and it leaves the cursor to be seen: whatever ends the program, a kill -9 even, the terminal
// is as it was, but for the echo of what is typed. It may be used by many at once.
type View struct {
	clock   func() time.Time
	stop    chan struct{}
	drawing sync.WaitGroup

	mu     sync.Mutex
	still  *Still
	echo   echo
	fold   *progress.Fold
	isOver bool
}

// Start shows what is planned on a terminal, until Stop is called.
func Start(terminal *os.File, plan progress.Intent, clock func() time.Time) *View {
	v := &View{clock: clock, stop: make(chan struct{}), still: NewStill(terminal), echo: echo{terminal: terminal}, fold: progress.New(plan)}
	v.drawing.Go(v.draw)
	return v
}

// draw draws frame after frame until Stop is called.
func (v *View) draw() {
	resumed := make(chan os.Signal, 1)
	notifyResumed(resumed)
	defer signal.Stop(resumed)
	ticker := time.NewTicker(time.Second / framesPerSecond)
	defer ticker.Stop()
	for isResumed := false; ; {
		v.frame(isResumed)
		isResumed = false
		select {
		case <-ticker.C:
		case <-resumed: // after Ctrl-Z and fg: the shell has written to the terminal
			isResumed = true
		case <-v.stop:
			return
		}
	}
}

// frame draws the screen, which leaves some room for what is printed.
func (v *View) frame(isResumed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.echo.turnOff() // again, after Ctrl-Z and fg
	v.fold.At(v.clock())
	v.still.isSpoilt = isResumed
	width, height := v.still.Size()
	lines := strings.Split(Screen(v.fold.Progress(), width, height-1-max(1, height/8)), "\n")
	_ = v.still.replace(lines, width, height) // without it there are lines, and the summary
}

// Event takes in what has happened. It costs next to nothing: the next frame shows it.
func (v *View) Event(event apply.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fold.Event(event)
}

// Delete takes in how a pending delete stands; "" if it is over.
func (v *View) Delete(id kinds.ID, state string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fold.Delete(id, state)
}

// Pending are the deletes that are not done.
func (v *View) Pending() []kinds.ID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []kinds.ID
	for _, deleting := range v.fold.Progress().Deletes {
		all = append(all, deleting.Object)
	}
	return all
}

// Write prints lines above the screen, which stay.
func (v *View) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isOver {
		return v.still.terminal.Write(text)
	}
	v.still.above = append(v.still.above, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	return len(text), nil
}

// Stop takes the screen away, and leaves what was printed.
func (v *View) Stop() {
	close(v.stop)
	v.drawing.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.isOver = true
	v.echo.restore()
	width, height := v.still.Size()
	_ = v.still.replace(nil, width, height)
}

var _ io.Writer = &View{}
