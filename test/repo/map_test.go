package repo

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"
)

// mapFile is the picture of the rooms, which docs/ARCHITECTURE.md and README.md show.
const mapFile = "../../docs/images/rooms.svg"

// toolsRoom is the room that nearly all others import. It is drawn below them, without arrows.
const toolsRoom = "internal/kit"

// drawn is what the picture says of each room, and in which of its columns the room stands. Its row follows from the
// imports.
var drawn = map[string]struct {
	column float64
	about  string
}{
	"cmd":           {3, "the programs"},
	"internal/app":  {1, "serve and its commands"},
	"library":       {0, "*.go, middleware, metrics"},
	"internal/wire": {1, "gRPC, HTTP/2, messages"},
	"ratelimit":     {1, "decides a request"},
	"descriptors":   {0, "rules and their sources"},
	"notify":        {3, "notification gateway"},
	"policies":      {0, "limits in a database"},
	"backends":      {1, "stores and their layers"},
	"slots":         {2.3, "slot scheduling"},
	"limit":         {0.5, "the algorithms"},
	toolsRoom:       {0, ""},
}

// roomsImported returns which rooms each room imports.
func roomsImported(list []pkg) map[string][]string {
	imported := map[string][]string{}
	for _, p := range list {
		from := roomOf(p.path)
		if slices.Contains(outside, from) {
			continue
		}
		for _, name := range p.imports {
			our, isOurs := ours(name)
			to := roomOf(our)
			if isOurs && to != from && !slices.Contains(outside, to) && !slices.Contains(imported[from], to) {
				imported[from] = append(imported[from], to)
			}
		}
	}
	return imported
}

// shown returns the arrows of a room that the picture needs: an arrow that a longer way implies is left out.
func shown(imported map[string][]string, from string) (arrows []string) {
	for _, to := range slices.Sorted(slices.Values(imported[from])) {
		implied := slices.ContainsFunc(imported[from], func(other string) bool {
			return other != to && reaches(imported, other, to)
		})
		if !implied && to != toolsRoom {
			arrows = append(arrows, to)
		}
	}
	return arrows
}

func reaches(imported map[string][]string, from, to string) bool {
	return slices.ContainsFunc(imported[from], func(next string) bool {
		return next == to || reaches(imported, next, to)
	})
}

// heightOf is how many arrows the longest way down from a room has.
func heightOf(imported map[string][]string, from string) int {
	height := 0
	for _, to := range imported[from] {
		if to != toolsRoom {
			height = max(height, 1+heightOf(imported, to))
		}
	}
	return height
}

const (
	boxWidth, boxHeight    = 170, 46
	columnWidth, rowHeight = 186, 78
	mapMargin              = 16
)

type roomBox struct {
	Name, About        string
	X, Y, Middle, Foot int
}

type roomArrow struct{ X1, Y1, X2, Y2 int }

// mapPicture draws the rooms. Each room stands above all rooms that it imports.
func mapPicture(imported map[string][]string) (string, error) {
	top := 0
	for _, room := range floors {
		top = max(top, heightOf(imported, room))
	}
	boxes := map[string]roomBox{}
	var without []string
	for _, room := range floors {
		if room == toolsRoom {
			continue
		}
		about, ok := drawn[room]
		if !ok {
			return "", fmt.Errorf("the room %s has no place in the picture", room)
		}
		x := mapMargin + int(about.column*columnWidth)
		y := mapMargin + (top-heightOf(imported, room))*rowHeight
		boxes[room] = roomBox{room, about.about, x, y, x + boxWidth/2, y + boxHeight}
		if !slices.Contains(imported[room], toolsRoom) {
			without = append(without, room)
		}
	}
	var arrows []roomArrow
	for from, box := range boxes {
		for _, to := range shown(imported, from) {
			target := boxes[to]
			lean := max(-1, min(1, (target.X-box.X)/(columnWidth/2))) * (boxWidth/2 - 6)
			arrows = append(arrows, roomArrow{box.Middle + lean, box.Foot, target.Middle - lean/2, target.Y - 3})
		}
	}
	slices.SortFunc(arrows, func(a, b roomArrow) int {
		return slices.Compare([]int{a.Y1, a.X1, a.Y2, a.X2}, []int{b.Y1, b.X1, b.Y2, b.X2})
	})
	var list []roomBox
	for _, room := range slices.Sorted(maps.Keys(boxes)) {
		list = append(list, boxes[room])
	}
	foot := mapMargin + (top+1)*rowHeight
	var b strings.Builder
	err := mapTemplate.Execute(&b, map[string]any{"Boxes": list, "Arrows": arrows, "Without": strings.Join(without, ", "),
		"Tools": toolsRoom, "Foot": foot, "Height": foot + 40 + mapMargin})
	return b.String(), err
}

var mapTemplate = template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="760" ` +
	`height="{{.Height}}" font-family="sans-serif">
<style>
.page { fill: #ffffff } .box { fill: #e8f0fb; stroke: #3b7dd8 } .tools { fill: #f0f0f0; stroke: #888888 }
.name { font-size: 15px; font-weight: bold; fill: #1c1c1c } .about { font-size: 12px; fill: #444444 }
.arrow { stroke: #555555; stroke-width: 1.5 } .head { fill: #555555 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .box { fill: #1b2a41; stroke: #5a9bf0 } .tools { fill: #22262c; stroke: #888888 }
.name { fill: #f0f0f0 } .about { fill: #b8c0ca } .arrow { stroke: #9aa4b0 } .head { fill: #9aa4b0 }
}
</style>
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">` +
	`<path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>
<rect class="page" width="100%" height="100%"/>
{{range .Arrows}}<line class="arrow" x1="{{.X1}}" y1="{{.Y1}}" x2="{{.X2}}" y2="{{.Y2}}" marker-end="url(#head)"/>
{{end}}{{range .Boxes}}<rect class="box" x="{{.X}}" y="{{.Y}}" width="170" height="46" rx="6"/>
<text class="name" x="{{.Middle}}" y="{{.Y}}" dy="20" text-anchor="middle">{{.Name}}</text>
<text class="about" x="{{.Middle}}" y="{{.Y}}" dy="37" text-anchor="middle">{{.About}}</text>
{{end}}<rect class="tools" x="16" y="{{.Foot}}" width="728" height="36" rx="6"/>
<text class="about" x="380" y="{{.Foot}}" dy="23" text-anchor="middle"><tspan class="name">{{.Tools}}</tspan>` +
	`  tools that all rooms but {{.Without}} import</text>
</svg>
`))

// TestMapOfTheRooms: the picture of the rooms shows the imports as they are, and is well formed.
func TestMapOfTheRooms(t *testing.T) {
	picture, err := mapPicture(roomsImported(packages(t, root(t))))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(mapFile, []byte(picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if string(readFile(t, mapFile)) != picture {
		t.Errorf("%s is not what the imports say: run go test ./test/repo -run Map -update", mapFile)
	}
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestMapLeavesOutWhatIsImplied(t *testing.T) {
	imported := map[string][]string{"cmd": {"ratelimit", "limit", toolsRoom}, "ratelimit": {"limit", toolsRoom}}
	if got := shown(imported, "cmd"); !slices.Equal(got, []string{"ratelimit"}) {
		t.Errorf("cmd has arrows to %v, want ratelimit only", got)
	}
	if got := heightOf(imported, "cmd"); got != 2 {
		t.Errorf("cmd stands %d rows above the lowest, want 2", got)
	}
	imported["limit"] = []string{"policies"}
	if got := heightOf(imported, "cmd"); got != 3 {
		t.Errorf("cmd stands %d rows above the lowest after one import more, want 3", got)
	}
}

// TestRoomsSayWhatTheyUse: the table of docs/ARCHITECTURE.md has for each room the rooms that it imports, all of them.
func TestRoomsSayWhatTheyUse(t *testing.T) {
	imported := roomsImported(packages(t, root(t)))
	page := string(readFile(t, "../../docs/ARCHITECTURE.md"))
	for _, room := range floors {
		uses := imported[room]
		slices.SortFunc(uses, func(a, b string) int { return slices.Index(floors, a) - slices.Index(floors, b) })
		cell := "nobody"
		if len(uses) > 0 {
			cell = strings.Join(uses, ", ")
		}
		name := "`" + room + "`"
		if room == "library" {
			name = room
		}
		row, _, ok := strings.Cut(page[max(strings.Index(page, "\n| "+name+" |"), 0):], " |\n")
		if !ok || !strings.Contains(row, "| "+cell+" |") {
			t.Errorf("the row of %s in docs/ARCHITECTURE.md lacks %q", room, cell)
		}
	}
}
