//! Translation of functions from WGSL to CUDA: signatures, variables, and names of values.

use std::collections::HashMap;

use naga::proc::TypeResolution;
use naga::valid::FunctionInfo;
use naga::{AddressSpace, Arena, Binding, BuiltIn, Expression, Function, GlobalVariable, Handle, TypeInner};

use super::refusal::{Refusal, Written, refuse};
use super::types::{Unit, argument_name, local_name};

/// Writer of one function, or of the module's constant expressions.
pub(super) struct FunctionWriter<'a> {
    pub(super) unit: &'a Unit<'a>,
    pub(super) arena: &'a Arena<Expression>,
    scope: Option<(&'a Function, &'a FunctionInfo)>,
    /// Names in the C++ text of the values that have one already.
    pub(super) names: HashMap<Handle<Expression>, String>,
    pub(super) out: String,
    pub(super) depth: usize,
}

impl<'a> FunctionWriter<'a> {
    fn new(unit: &'a Unit<'a>, arena: &'a Arena<Expression>) -> Self {
        Self { unit, arena, scope: None, names: HashMap::new(), out: String::new(), depth: 0 }
    }

    /// Returns a writer of the module's constant expressions.
    pub(super) fn of_module(unit: &'a Unit<'a>) -> Self {
        Self::new(unit, &unit.module.global_expressions)
    }

    pub(super) fn of_function(unit: &'a Unit<'a>, function: &'a Function, info: &'a FunctionInfo) -> Self {
        Self { scope: Some((function, info)), ..Self::new(unit, &function.expressions) }
    }

    /// Returns the current function; an error for a constant expression outside of functions.
    pub(super) fn function_scope(&self) -> Written<&'a Function> {
        self.scope.map(|(f, _)| f).ok_or_else(|| Refusal::new("a constant that depends on a function"))
    }

    /// Returns the type of an expression as naga resolved it.
    pub(super) fn resolution(&self, expression: Handle<Expression>) -> &'a TypeResolution {
        match self.scope {
            Some((_, info)) => &info[expression].ty,
            None => &self.unit.info[expression],
        }
    }

    pub(super) fn inner(&self, expression: Handle<Expression>) -> &'a TypeInner {
        self.resolution(expression).inner_with(&self.unit.module.types)
    }

    pub(super) fn uses(&self, expression: Handle<Expression>) -> usize {
        self.scope.map_or(1, |(_, info)| info[expression].ref_count)
    }

    pub(super) fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n("    ", self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// Returns the module's variables that a function uses, also through calls. They are additional
    /// arguments in CUDA.
    pub(super) fn globals(unit: &Unit<'_>, info: &FunctionInfo) -> Vec<Handle<GlobalVariable>> {
        let used = |handle: &Handle<GlobalVariable>| !info[*handle].is_empty();
        unit.module.global_variables.iter().map(|(handle, _)| handle).filter(used).collect()
    }

    /// Writes a function other than the entry point.
    pub(super) fn function(mut self, handle: Handle<Function>) -> Written {
        let function = self.function_scope()?;
        let mut parameters = Vec::new();
        for (i, argument) in function.arguments.iter().enumerate() {
            let name = argument_name(argument.name.as_deref(), i);
            parameters.push(match *self.unit.inner(argument.ty) {
                TypeInner::Pointer { base, space: AddressSpace::Function } => {
                    format!("{}& {name}", self.unit.type_text(base)?)
                }
                _ => format!("const {} {name}", self.unit.type_text(argument.ty)?),
            });
        }
        for global in Self::globals(self.unit, &self.unit.info[handle]) {
            parameters.push(self.unit.parameter(global)?);
        }
        let result = match &function.result {
            Some(result) => self.unit.type_text(result.ty)?,
            None => "void".into(),
        };
        let name = self.unit.function_name(handle);
        self.line(&format!("__device__ __forceinline__ {result} {name}({}) {{", parameters.join(", ")));
        self.depth += 1;
        self.variables_and_statements()?;
        Ok(self.out)
    }

    /// Writes the entry point; `arguments` are its immediates and bindings.
    pub(super) fn entry(mut self, name: &str, groups: u32, arguments: &[Handle<GlobalVariable>]) -> Written {
        let function = self.function_scope()?;
        let mut parameters = Vec::new();
        for &variable in arguments {
            parameters.push(match self.unit.module.global_variables[variable] {
                GlobalVariable { space: AddressSpace::Immediate, ty, .. } => {
                    format!("const {} {}", self.unit.type_text(ty)?, self.unit.global_name(variable))
                }
                _ => self.unit.parameter(variable)?,
            });
        }
        let [group, _, _] = self.unit.module.entry_points[0].workgroup_size;
        // A multiprocessor holds 1024 threads below compute capability 8.0, and 1536 or 2048 from
        // it on.
        let groups = match groups {
            0 => String::new(),
            _ => format!(", __CUDA_ARCH__ < 800 ? {} : {groups}", groups.min(1024 / group)),
        };
        self.line(&format!("extern \"C\" __global__ void __launch_bounds__({group}{groups})"));
        self.line(&format!("{name}({}) {{", parameters.join(", ")));
        self.depth += 1;

        for (handle, variable) in self.unit.module.global_variables.iter() {
            let span = self.unit.module.global_variables.get_span(handle);
            if variable.space == AddressSpace::WorkGroup {
                let ty = self.unit.type_text(variable.ty).map_err(|r| r.at(span))?;
                self.line(&format!("__shared__ {ty} {};", self.unit.global_name(handle)));
            }
        }
        for (i, argument) in function.arguments.iter().enumerate() {
            let ty = self.unit.type_text(argument.ty)?;
            let value = built_in(argument.binding.as_ref())?;
            let name = argument_name(argument.name.as_deref(), i);
            self.line(&format!("const {ty} {name} = {value};"));
        }
        self.variables_and_statements()?;
        Ok(self.out)
    }

    /// Writes a function's variables, statements and closing brace.
    fn variables_and_statements(&mut self) -> Written<()> {
        let function = self.function_scope()?;
        for (handle, variable) in function.local_variables.iter() {
            let span = function.local_variables.get_span(handle);
            let ty = self.unit.type_text(variable.ty).map_err(|r| r.at(span))?;
            let value = match variable.init {
                Some(value) => self.value(value)?,
                None => format!("{ty}{{}}"),
            };
            self.line(&format!("{ty} {} = {value};", local_name(variable.name.as_deref(), handle)));
        }
        self.block(&function.body)?;
        self.depth -= 1;
        self.line("}\n");
        Ok(())
    }
}

/// Returns C++ text for a built-in argument of the entry point, for groups of one dimension.
fn built_in(binding: Option<&Binding>) -> Written {
    let text = match binding {
        Some(Binding::BuiltIn(BuiltIn::WorkGroupId)) => "Vec<u32, 3>{{blockIdx.x, blockIdx.y, blockIdx.z}}",
        Some(Binding::BuiltIn(BuiltIn::NumWorkGroups)) => "Vec<u32, 3>{{gridDim.x, gridDim.y, gridDim.z}}",
        Some(Binding::BuiltIn(BuiltIn::LocalInvocationIndex)) => "threadIdx.x",
        other => return refuse(format!("the argument {other:?}")),
    };
    Ok(text.into())
}
