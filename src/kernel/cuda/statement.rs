//! Translation of statements: control flow, stores, calls, barriers and subgroup operations.

use naga::{
    AtomicFunction, Barrier, Block, CollectiveOperation, Direction, Expression, GatherMode, Handle,
    Statement, SubgroupOperation, SwitchCase, SwitchValue, TypeInner,
};

use super::function::Body;
use super::types::{Item, value_name};
use super::{Written, refuse};

impl Body<'_> {
    /// Writes the statements of a block at the current depth.
    pub(super) fn block(&mut self, block: &Block) -> Written<()> {
        for (statement, &span) in block.span_iter() {
            self.statement(statement).map_err(|r| r.at(span))?;
        }
        Ok(())
    }

    /// Writes a block at the next depth, with its own declarations.
    fn nested(&mut self, block: &Block) -> Written<()> {
        let hoisted = self.hoisted.take();
        self.depth += 1;
        self.block(block)?;
        self.depth -= 1;
        self.hoisted = hoisted;
        Ok(())
    }

    /// Declares a name for a value that is computed at this place only.
    fn define(&mut self, expression: Handle<Expression>, text: &str) -> Written<()> {
        let given = self.function_scope()?.named_expressions.get(&expression);
        let name = value_name(given.map(String::as_str), expression);
        let ty = self.unit.resolution_text(self.resolution(expression))?;
        self.declare(&ty, &name, text);
        self.names.insert(expression, name);
        Ok(())
    }

    /// Writes the declaration of a constant, or its assignment if declarations are hoisted.
    fn declare(&mut self, ty: &str, name: &str, text: &str) {
        match &mut self.hoisted {
            Some(declarations) => {
                declarations.push(format!("{ty} {name};"));
                self.line(&format!("{name} = {text};"));
            }
            None => self.line(&format!("const {ty} {name} = {text};")),
        }
    }

    /// Writes a computation, with a name for its result if that is used.
    fn define_result(&mut self, result: Option<Handle<Expression>>, text: &str) -> Written<()> {
        match result {
            Some(result) => self.define(result, text),
            None => {
                self.line(&format!("{text};"));
                Ok(())
            }
        }
    }

    fn statement(&mut self, statement: &Statement) -> Written<()> {
        match *statement {
            Statement::Emit(ref range) => {
                for expression in range.clone() {
                    // A pointer is written at its uses; its indices have names by then.
                    if self.is_pointer(expression) {
                        continue;
                    }
                    let text = self.expression(expression)?;
                    // An unused expression is omitted only after translation, so that it must be in
                    // the subset, too.
                    if self.uses(expression) == 0 {
                        continue;
                    }
                    self.define(expression, &text).map_err(|r| r.at(self.arena.get_span(expression)))?;
                }
            }
            Statement::Block(ref block) => {
                self.line("{");
                self.nested(block)?;
                self.line("}");
            }
            Statement::If { condition, ref accept, ref reject } => {
                let condition = self.value(condition)?;
                // naga translates the condition of `for` and `while` to an `if` that only has an
                // `else`.
                let (condition, accept, reject) = if accept.is_empty() {
                    (format!("!{condition}"), reject, accept)
                } else {
                    (condition, accept, reject)
                };
                self.line(&format!("if ({condition}) {{"));
                self.nested(accept)?;
                if !reject.is_empty() {
                    self.line("} else {");
                    self.nested(reject)?;
                }
                self.line("}");
            }
            Statement::Switch { selector, ref cases } => self.switch(selector, cases)?,
            Statement::Loop { ref body, ref continuing, break_if } => {
                self.repeat(body, continuing, break_if)?;
            }
            Statement::Break => self.line("break;"),
            Statement::Continue => match self.loops.last().cloned().flatten() {
                Some(label) => self.line(&format!("goto {label};")),
                None => self.line("continue;"),
            },
            Statement::Return { value: None } => self.line("return;"),
            Statement::Return { value: Some(value) } => {
                let value = self.value(value)?;
                self.line(&format!("return {value};"));
            }
            Statement::Kill => return refuse("discard"),
            Statement::ControlBarrier(flags) => self.line(barrier(flags)),
            Statement::MemoryBarrier(_) => return refuse("a barrier of memory alone"),
            Statement::Store { pointer, value } => {
                let (place, value) = (self.place(pointer)?, self.value(value)?);
                if self.is_atomic(pointer) {
                    self.line(&format!("atomic_store({place}, {value});"));
                } else {
                    self.line(&format!("{place} = {value};"));
                }
            }
            Statement::Atomic { pointer, fun, value, result } => self.atomic(pointer, fun, value, result)?,
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let place = self.place(pointer)?;
                let text = if self.is_atomic(pointer) { format!("atomic_load({place})") } else { place };
                self.line("__syncthreads();");
                self.define(result, &text)?;
                self.line("__syncthreads();");
            }
            Statement::Call { function, ref arguments, result } => {
                let mut values = Vec::new();
                for &argument in arguments {
                    values.push(if self.is_pointer(argument) {
                        self.place(argument)?
                    } else {
                        self.value(argument)?
                    });
                }
                let globals = Body::globals(self.unit, &self.unit.info[function]);
                values.extend(globals.into_iter().map(|g| self.unit.global_name(g)));
                let text = format!("{}({})", self.unit.function_name(function), values.join(", "));
                self.define_result(result, &text)?;
            }
            Statement::SubgroupBallot { result, predicate } => {
                let predicate = predicate.map_or(Ok("true".into()), |p| self.value(p))?;
                self.define(result, &format!("subgroup_ballot({predicate})"))?;
            }
            Statement::SubgroupGather { mode, argument, result } => {
                let text = self.gather(mode, argument)?;
                self.define(result, &text)?;
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                let text = format!("{}({})", collective(op, collective_op)?, self.value(argument)?);
                self.define(result, &text)?;
            }
            Statement::ImageStore { .. } | Statement::ImageAtomic { .. } => return refuse("textures"),
            Statement::RayQuery { .. } | Statement::RayPipelineFunction(_) => return refuse("ray queries"),
            Statement::CooperativeStore { .. } => return refuse("cooperative matrices"),
        }
        Ok(())
    }

    fn switch(&mut self, selector: Handle<Expression>, cases: &[SwitchCase]) -> Written<()> {
        let selector = self.value(selector)?;
        self.line(&format!("switch ({selector}) {{"));
        for case in cases {
            let label = match case.value {
                SwitchValue::I32(i32::MIN) => "case -2147483647 - 1:".into(),
                SwitchValue::I32(value) => format!("case {value}:"),
                SwitchValue::U32(value) => format!("case {value}u:"),
                SwitchValue::Default => "default:".to_owned(),
            };
            if case.fall_through && case.body.is_empty() {
                self.line(&label);
                continue;
            }
            self.line(&format!("{label} {{"));
            self.nested(&case.body)?;
            self.line(if case.fall_through { "}" } else { "} break;" });
        }
        self.line("}");
        Ok(())
    }

    /// Writes a loop.
    ///
    /// Values of the body are in scope in `continuing` and in `break_if`, so all three share one
    /// block. If a `continue` skips the rest of the body, C++ forbids to jump over declarations.
    /// The declarations of the body are then placed before it.
    fn repeat(
        &mut self,
        body: &Block,
        continuing: &Block,
        break_if: Option<Handle<Expression>>,
    ) -> Written<()> {
        let hoisted = self.hoisted.take();
        let labelled = continues(body) && !(continuing.is_empty() && break_if.is_none());
        self.line("for (;;) {");
        self.depth += 1;
        if labelled {
            self.labels += 1;
            let label = format!("continuing_{}", self.labels);
            self.loops.push(Some(label.clone()));
            self.hoisted = Some(Vec::new());
            self.depth += 1;
            let before = std::mem::take(&mut self.out);
            self.block(body)?;
            let inside = std::mem::replace(&mut self.out, before);
            self.depth -= 1;
            for declaration in self.hoisted.take().unwrap_or_default() {
                self.line(&declaration);
            }
            self.line("{");
            self.out.push_str(&inside);
            self.line("}");
            self.line(&format!("{label}:;"));
        } else {
            self.loops.push(None);
            self.block(body)?;
        }
        self.block(continuing)?;
        if let Some(condition) = break_if {
            let condition = self.value(condition)?;
            self.line(&format!("if ({condition}) break;"));
        }
        self.loops.pop();
        self.depth -= 1;
        self.line("}");
        self.hoisted = hoisted;
        Ok(())
    }

    fn is_atomic(&self, pointer: Handle<Expression>) -> bool {
        self.inner(pointer).is_atomic_pointer(&self.unit.module.types)
    }

    fn atomic(
        &mut self,
        pointer: Handle<Expression>,
        fun: AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Written<()> {
        let (place, value) = (self.place(pointer)?, self.value(value)?);
        let function = match fun {
            AtomicFunction::Add => "add",
            AtomicFunction::Subtract => "sub",
            AtomicFunction::And => "and",
            AtomicFunction::ExclusiveOr => "xor",
            AtomicFunction::InclusiveOr => "or",
            AtomicFunction::Min => "min",
            AtomicFunction::Max => "max",
            AtomicFunction::Exchange { compare: None } => "exchange",
            AtomicFunction::Exchange { compare: Some(compare) } => {
                let compare = self.value(compare)?;
                let text = format!("atomic_compare_exchange({place}, {compare}, {value})");
                return self.compare_exchange(result, &text, &compare);
            }
        };
        self.define_result(result, &format!("atomic_{function}({place}, {value})"))
    }

    /// Writes a compare-exchange. Its result is the old value, and true if that equals `compare`.
    fn compare_exchange(
        &mut self,
        result: Option<Handle<Expression>>,
        text: &str,
        compare: &str,
    ) -> Written<()> {
        let Some(result) = result else { return self.define_result(None, text) };
        let (members, span) = match self.inner(result) {
            TypeInner::Struct { members, span } if members.len() == 2 => (members, span),
            _ => return refuse("a compare-exchange without its struct"),
        };
        let name = format!("old_{}", result.index());
        let values: Vec<_> = self
            .unit
            .items(members, *span)
            .into_iter()
            .map(|item| match item {
                Item::Member(0) => name.clone(),
                Item::Member(_) => format!("{name} == {compare}"),
                Item::Padding(_) => "{}".into(),
            })
            .collect();
        self.declare(&self.unit.type_text(members[0].ty)?, &name, text);
        let ty = self.unit.resolution_text(self.resolution(result))?;
        self.define(result, &format!("{ty}{{{}}}", values.join(", ")))
    }

    fn gather(&self, mode: GatherMode, argument: Handle<Expression>) -> Written {
        let (function, lane) = match mode {
            GatherMode::BroadcastFirst => ("subgroup_shuffle", "0u".into()),
            GatherMode::Broadcast(lane) | GatherMode::Shuffle(lane) => {
                ("subgroup_shuffle", self.value(lane)?)
            }
            GatherMode::ShuffleDown(by) => ("subgroup_shuffle_down", self.value(by)?),
            GatherMode::ShuffleUp(by) => ("subgroup_shuffle_up", self.value(by)?),
            GatherMode::ShuffleXor(mask) => ("subgroup_shuffle_xor", self.value(mask)?),
            GatherMode::QuadBroadcast(lane) => ("quad_broadcast", self.value(lane)?),
            GatherMode::QuadSwap(Direction::X) => ("subgroup_shuffle_xor", "1u".into()),
            GatherMode::QuadSwap(Direction::Y) => ("subgroup_shuffle_xor", "2u".into()),
            GatherMode::QuadSwap(Direction::Diagonal) => ("subgroup_shuffle_xor", "3u".into()),
        };
        Ok(format!("{function}({}, {lane})", self.value(argument)?))
    }
}

/// Returns true if a loop's body has a `continue` of that loop.
fn continues(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Continue => true,
        Statement::Block(block) => continues(block),
        Statement::If { accept, reject, .. } => continues(accept) || continues(reject),
        Statement::Switch { cases, .. } => cases.iter().any(|case| continues(&case.body)),
        _ => false,
    })
}

/// Returns the barrier of a subgroup or a workgroup. It also orders the memory accesses of its
/// threads.
fn barrier(flags: Barrier) -> &'static str {
    if flags == Barrier::SUB_GROUP { "__syncwarp();" } else { "__syncthreads();" }
}

fn collective(op: SubgroupOperation, scope: CollectiveOperation) -> Written<&'static str> {
    use {CollectiveOperation as C, SubgroupOperation as S};
    Ok(match (scope, op) {
        (C::Reduce, S::All) => "subgroup_all",
        (C::Reduce, S::Any) => "subgroup_any",
        (C::Reduce, S::Add) => "subgroup_add",
        (C::Reduce, S::Mul) => "subgroup_mul",
        (C::Reduce, S::Min) => "subgroup_min",
        (C::Reduce, S::Max) => "subgroup_max",
        (C::Reduce, S::And) => "subgroup_and",
        (C::Reduce, S::Or) => "subgroup_or",
        (C::Reduce, S::Xor) => "subgroup_xor",
        (C::InclusiveScan, S::Add) => "subgroup_inclusive_add",
        (C::InclusiveScan, S::Mul) => "subgroup_inclusive_mul",
        (C::ExclusiveScan, S::Add) => "subgroup_exclusive_add",
        (C::ExclusiveScan, S::Mul) => "subgroup_exclusive_mul",
        (scope, op) => return refuse(format!("{scope:?} of {op:?} over a subgroup")),
    })
}
