// Package results has an analyzer that refuses results which a caller cannot tell apart.
package results

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

const most = 4

// Analyzer finds functions with many results, or with results of one type that have no names.
var Analyzer = &analysis.Analyzer{
	Name: "results",
	Doc: `functions have four results at most, and results of one type have names

More than four results belong into a struct whose fields have names. Two results of one type need names, for nothing
else says which is which; _ is none. This holds for functions, methods, function literals and methods of interfaces.
A method may have more results than four if it implements an interface of another module.`,
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

func run(pass *analysis.Pass) (any, error) {
	nodes := []ast.Node{(*ast.File)(nil), (*ast.FuncDecl)(nil), (*ast.FuncLit)(nil), (*ast.InterfaceType)(nil)}
	generated := false
	pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Preorder(nodes, func(n ast.Node) {
		if file, ok := n.(*ast.File); ok {
			generated = ast.IsGenerated(file)
		}
		if generated {
			return
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			if method, ok := pass.TypesInfo.Defs[n.Name].(*types.Func); ok && !implements(pass, method) {
				few(pass, n.Type)
			}
			named(pass, n.Type)
		case *ast.FuncLit:
			few(pass, n.Type)
			named(pass, n.Type)
		case *ast.InterfaceType:
			for _, method := range n.Methods.List {
				if signature, ok := method.Type.(*ast.FuncType); ok {
					few(pass, signature)
					named(pass, signature)
				}
			}
		}
	})
	return nil, nil
}

func few(pass *analysis.Pass, signature *ast.FuncType) {
	if n := signature.Results.NumFields(); n > most {
		pass.Reportf(signature.Results.Pos(), "%d results, want at most %d: return a struct", n, most)
	}
}

// named reports the first result that has no name and the type of another one.
func named(pass *analysis.Pass, signature *ast.FuncType) {
	if signature.Results == nil {
		return
	}
	var unnamed, all []types.Type
	for _, field := range signature.Results.List {
		t := pass.TypesInfo.TypeOf(field.Type)
		for i := range max(1, len(field.Names)) {
			all = append(all, t)
			if len(field.Names) == 0 || field.Names[i].Name == "_" {
				unnamed = append(unnamed, t)
			}
		}
	}
	for _, t := range unnamed {
		n := 0
		for _, other := range all {
			if types.Identical(t, other) {
				n++
			}
		}
		if n > 1 {
			pass.Reportf(signature.Results.Pos(), "%d results are of type %s: name them", n,
				types.TypeString(t, types.RelativeTo(pass.Pkg)))
			return
		}
	}
}

// implements reports whether a method is one of an interface of another module that its receiver implements.
func implements(pass *analysis.Pass, method *types.Func) bool {
	receiver := method.Signature().Recv()
	if receiver == nil {
		return false
	}
	for _, imported := range pass.Pkg.Imports() {
		if pass.Module != nil && ours(imported.Path(), pass.Module.Path) {
			continue
		}
		for _, name := range imported.Scope().Names() {
			declared, ok := imported.Scope().Lookup(name).(*types.TypeName)
			if !ok {
				continue
			}
			its, ok := declared.Type().Underlying().(*types.Interface)
			if !ok || !types.Implements(receiver.Type(), its) {
				continue
			}
			for m := range its.Methods() {
				if m.Name() == method.Name() {
					return true
				}
			}
		}
	}
	return false
}

// ours reports whether a package belongs to a module.
func ours(path, module string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}
