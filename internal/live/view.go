package live

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/progress"
)

// framesPerSecond is how often the screen is drawn, however much happens.
const framesPerSecond = 10

// A View keeps the progress of an apply on a terminal. It reads nothing from it, so that Ctrl-C stays a signal,
// and it leaves the cursor to be seen: whatever ends the program, a kill -9 even, the terminal
// is as it was, but for the echo of what is typed. It may be used by many at once.
type View struct {
	terminal *os.File
	clock    func() time.Time
	echo     echo
	program  *tea.Program
	ended    chan struct{}

	mu      sync.Mutex
	fold    *progress.Fold
	above   []string // lines that wait to be printed
	printed []string // the last of those that were
	width   int
	height  int
	lines   int // that the screen had
	pause   int // frames until lines may be printed again
	isOver  bool
}

// Start shows what is planned on a terminal, until Stop is called.
func Start(terminal *os.File, plan progress.Intent, clock func() time.Time) *View {
	v := &View{terminal: terminal, clock: clock, echo: echo{terminal: terminal}, fold: progress.New(plan), ended: make(chan struct{}), pause: settling}
	v.echo.turnOff()
	v.program = tea.NewProgram(screen{v}, tea.WithInput(nil), tea.WithOutput(terminal), tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond))
	go func() {
		defer close(v.ended)
		_, _ = v.program.Run() // without it there are lines, and the summary
	}()
	go v.goOn()
	return v
}

// goOn draws all anew whenever the program goes on after Ctrl-Z: the shell has written meanwhile.
func (v *View) goOn() {
	signals := make(chan os.Signal, 1)
	notifyResumed(signals)
	defer signal.Stop(signals)
	for {
		select {
		case <-signals:
			v.program.Send(resumed{})
		case <-v.ended:
			return
		}
	}
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
	for _, one := range v.fold.Progress().Deletes {
		all = append(all, one.Object)
	}
	return all
}

// Write prints lines above the screen, which stay.
func (v *View) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isOver {
		return v.terminal.Write(text)
	}
	v.above = append(v.above, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	return len(text), nil
}

// Stop takes the screen away, and leaves what was printed.
func (v *View) Stop() {
	v.mu.Lock()
	v.isOver = true
	v.mu.Unlock()
	v.program.Quit()
	<-v.ended
	v.echo.restore()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lines > 0 { // the library leaves what was drawn, and the cursor in its last line
		fmt.Fprint(v.terminal, "\r"+ansi.CursorUp(v.lines-1)+ansi.EraseScreenBelow)
	}
	for _, line := range v.above {
		fmt.Fprintln(v.terminal, line)
	}
	v.above = nil
}

// settling is how many frames it takes until the screen is where the library thinks it is: it
// prints lines at once, and draws later.
const settling = 3

// A screen is a view as the library sees it.
type screen struct{ view *View }

type frame time.Time

type resumed struct{}

func nextFrame() tea.Cmd {
	return tea.Tick(time.Second/framesPerSecond, func(now time.Time) tea.Msg { return frame(now) })
}

func (s screen) Init() tea.Cmd { return nextFrame() }

func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	v := s.view
	v.mu.Lock()
	defer v.mu.Unlock()
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		return s, v.resize(message)
	case resumed:
		return s, v.anew()
	case frame:
		if v.pause > 0 {
			v.pause--
		}
		v.echo.turnOff() // again, after Ctrl-Z and fg
		return s, tea.Batch(nextFrame(), v.print())
	default:
		return s, nil
	}
}

// resize takes in another size. Where lines have become shorter, the terminal may have broken
// what stood there in ways that only it knows: all is drawn anew, with what was printed last.
func (v *View) resize(size tea.WindowSizeMsg) tea.Cmd {
	isNarrower := v.width > 0 && size.Width < v.width
	v.width, v.height, v.lines = size.Width, size.Height, 0
	if !isNarrower {
		return nil
	}
	return v.anew()
}

// anew draws all anew on an empty screen, with what was printed last.
func (v *View) anew() tea.Cmd {
	v.above, v.printed, v.pause = append(v.printed, v.above...), nil, settling
	return tea.Sequence(tea.Raw(ansi.EraseEntireScreen+ansi.CursorHomePosition), tea.ClearScreen)
}

// print prints some of the lines that wait, as many as there is room for above the screen: else
// that itself would be scrolled away, and stay.
func (v *View) print() tea.Cmd {
	room := max(v.height-v.lines, 1)
	if v.pause > 0 || v.isOver || v.lines == 0 {
		return nil
	}
	var rows []string
	for len(v.above) > 0 && len(rows) < room {
		broken := strings.Split(ansi.Hardwrap(v.above[0], max(v.width-1, 1), true), "\n")
		fit := min(len(broken), room-len(rows))
		rows = append(rows, broken[:fit]...)
		v.printed = append(v.printed, strings.Join(broken[:fit], ""))
		if fit < len(broken) {
			v.above[0] = strings.Join(broken[fit:], "") // for the next frame
			break
		}
		v.above = v.above[1:]
	}
	v.printed = v.printed[max(0, len(v.printed)-v.height):]
	if len(rows) == 0 {
		return nil
	}
	return tea.Println(strings.Join(rows, "\n"))
}

// View draws the screen. It never gets shorter, so that what is below the cursor stays where it
// is, and leaves some room for what was printed. An empty line at its end is for the cursor.
func (s screen) View() tea.View {
	v := s.view
	v.mu.Lock()
	defer v.mu.Unlock()
	shown := tea.NewView("")
	shown.DisableBracketedPasteMode = true
	if v.width == 0 {
		return shown
	}
	v.fold.At(v.clock())
	text := Screen(v.fold.Progress(), v.width, v.height-1-max(1, v.height/8))
	v.lines = max(v.lines, strings.Count(text, "\n")+2)
	shown.Content = text + strings.Repeat("\n", v.lines-strings.Count(text, "\n")-1)
	shown.Cursor = &tea.Cursor{Position: tea.Position{X: 0, Y: v.lines - 1}, Shape: asItIs}
	return shown
}

// asItIs is no shape of the library's, which then leaves the cursor the one that it has.
const asItIs tea.CursorShape = -1

var _ io.Writer = &View{}
