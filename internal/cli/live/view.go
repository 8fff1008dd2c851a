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

// framesPerSecond limits the drawings of the screen, even if many events occur.
const framesPerSecond = 10

// A View shows the progress of an apply on a terminal. A View does not read from the terminal, so Ctrl-C stays a
// signal, and does not hide the cursor. So even a kill -9 leaves the terminal unchanged, except for the echo of typed
// characters. The methods may be called concurrently.
type View struct {
	clock   func() time.Time
	stop    chan struct{}
	drawing sync.WaitGroup

	mu     sync.Mutex
	area   *Area
	echo   echo
	model  *progress.Model
	isOver bool
}

// Start shows the progress of a plan on a terminal, until Stop is called.
func Start(terminal *os.File, plan progress.Intent, clock func() time.Time) *View {
	v := &View{
		clock: clock,
		stop:  make(chan struct{}),
		area:  NewArea(terminal),
		echo:  echo{terminal: terminal},
		model: progress.New(plan),
	}
	v.drawing.Go(v.drawFrames)
	return v
}

// drawFrames draws frames until Stop is called.
func (v *View) drawFrames() {
	resumed := make(chan os.Signal, 1)
	notifyOnResume(resumed)
	defer signal.Stop(resumed)
	ticker := time.NewTicker(time.Second / framesPerSecond)
	defer ticker.Stop()
	for isResumed := false; ; {
		v.drawFrame(isResumed)
		isResumed = false
		select {
		case <-ticker.C:
		case <-resumed: // after Ctrl-Z and fg, the terminal shows output of the shell
			isResumed = true
		case <-v.stop:
			return
		}
	}
}

// drawFrame draws the screen, and leaves some room for printed lines.
func (v *View) drawFrame(isResumed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.echo.turnOff() // Ctrl-Z and fg turn the echo on
	v.model.At(v.clock())
	v.area.isOverwritten = isResumed
	width, height := v.area.Size()
	lines := strings.Split(Screen(v.model.Progress(), width, height-1-max(1, height/8)), "\n")
	_ = v.area.replace(lines, width, height) // the events and the summary remain if this fails
}

// Event records an event, cheaply: the next frame shows it.
func (v *View) Event(event apply.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.model.Event(event)
}

// State records the state of the apply, cheaply: the next frame shows it.
func (v *View) State(state *apply.RunState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.model.State(state)
}

// Delete records the state of a pending delete. The state of a delete that is done is "".
func (v *View) Delete(id kinds.ID, state string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.model.Delete(id, state)
}

// Pending returns the deletes that are not done.
func (v *View) Pending() []kinds.ID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []kinds.ID
	for _, deleting := range v.model.Progress().Deletes {
		all = append(all, deleting.Object)
	}
	return all
}

// Write prints lines above the screen, where they stay.
func (v *View) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isOver {
		return v.area.terminal.Write(text)
	}
	v.area.pendingLines = append(v.area.pendingLines, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	return len(text), nil
}

// Stop removes the screen, and leaves the printed lines.
func (v *View) Stop() {
	close(v.stop)
	v.drawing.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.isOver = true
	v.echo.restore()
	width, height := v.area.Size()
	_ = v.area.replace(nil, width, height)
}

var _ io.Writer = &View{}
