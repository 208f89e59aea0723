// Package condition has an analyzer that refuses an if or a switch that assigns what its condition does not read.
package condition

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Analyzer finds statements before a condition that have nothing to do with it.
var Analyzer = &analysis.Analyzer{
	Name: "condition",
	Doc: `an if or a switch assigns only what its condition reads

A statement before the semicolon of an if or a switch must assign at least one thing that the condition or the tag
reads, or, in a switch without a tag, one of its cases. A call or a send assigns nothing. A line of its own before
the if or the switch says the same, and readers do not overlook it.

A condition reads h.queued if it has h.queued, h.queued.x or h as a whole, as h.full() has it, but not if it has h.x.`,
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

func run(pass *analysis.Pass) (any, error) {
	nodes := []ast.Node{(*ast.IfStmt)(nil), (*ast.SwitchStmt)(nil), (*ast.TypeSwitchStmt)(nil)}
	pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Preorder(nodes, func(n ast.Node) {
		switch s := n.(type) {
		case *ast.IfStmt:
			check(pass, "if", s.Init, s.Cond)
		case *ast.SwitchStmt:
			check(pass, "switch", s.Init, decides(s)...)
		case *ast.TypeSwitchStmt:
			check(pass, "switch", s.Init, s.Assign)
		}
	})
	return nil, nil
}

// decides returns the tag of a switch, or all of its cases.
func decides(s *ast.SwitchStmt) (read []ast.Node) {
	if s.Tag != nil {
		return []ast.Node{s.Tag}
	}
	for _, clause := range s.Body.List {
		for _, expr := range clause.(*ast.CaseClause).List {
			read = append(read, expr)
		}
	}
	return read
}

func check(pass *analysis.Pass, keyword string, init ast.Stmt, conditions ...ast.Node) {
	if init == nil {
		return
	}
	for _, expr := range assigned(init) {
		for _, condition := range conditions {
			if reads(pass.TypesInfo, condition, expr) {
				return
			}
		}
	}
	pass.Reportf(init.Pos(), "the condition of this %s reads nothing that the statement before it assigns: "+
		"write that on a line of its own", keyword)
}

// assigned returns what a statement assigns.
func assigned(s ast.Stmt) []ast.Expr {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return s.Lhs
	case *ast.IncDecStmt:
		return []ast.Expr{s.X}
	}
	return nil
}

// reads reports whether a condition reads an expression that was assigned, a part of it, or all that it is a part of.
func reads(info *types.Info, condition ast.Node, assigned ast.Expr) bool {
	assigned = bare(assigned)
	found := false
	ast.Inspect(condition, func(n ast.Node) bool {
		expr, ok := n.(ast.Expr)
		if !ok || found {
			return !found
		}
		if same(info, expr, assigned) || isPartOf(info, assigned, expr) {
			found = true
			return false
		}
		switch e := expr.(type) {
		case *ast.SelectorExpr:
			if isField(info, e) && isPartOf(info, assigned, e.X) {
				return false // another field
			}
		case *ast.IndexExpr:
			if isPartOf(info, assigned, e.X) {
				found = reads(info, e.Index, assigned)
				return false // another element
			}
		}
		return true
	})
	return found
}

// isPartOf reports whether one expression is a field, an element or what a pointer points to of another one.
func isPartOf(info *types.Info, part, whole ast.Expr) bool {
	for {
		switch e := part.(type) {
		case *ast.SelectorExpr:
			part = bare(e.X)
		case *ast.IndexExpr:
			part = bare(e.X)
		default:
			return false
		}
		if same(info, part, whole) {
			return true
		}
	}
}

// same reports whether two expressions name one variable, by the same path.
func same(info *types.Info, a, b ast.Expr) bool {
	a, b = bare(a), bare(b)
	switch a := a.(type) {
	case *ast.Ident:
		b, ok := b.(*ast.Ident)
		return ok && a.Name != "_" && info.ObjectOf(a) == info.ObjectOf(b)
	case *ast.SelectorExpr:
		b, ok := b.(*ast.SelectorExpr)
		return ok && info.ObjectOf(a.Sel) == info.ObjectOf(b.Sel) && same(info, a.X, b.X)
	case *ast.IndexExpr:
		b, ok := b.(*ast.IndexExpr)
		return ok && types.ExprString(a.Index) == types.ExprString(b.Index) && same(info, a.X, b.X)
	case *ast.CallExpr:
		b, ok := b.(*ast.CallExpr)
		return ok && types.ExprString(a) == types.ExprString(b)
	}
	return false
}

// bare removes parentheses, stars and ampersands: p, *p and &p name one variable here.
func bare(e ast.Expr) ast.Expr {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.UnaryExpr:
			if x.Op != token.AND {
				return e
			}
			e = x.X
		default:
			return e
		}
	}
}

func isField(info *types.Info, s *ast.SelectorExpr) bool {
	selection, ok := info.Selections[s]
	return ok && selection.Kind() == types.FieldVal
}
