"""The options of trtexec, by major version.

Names taken from NVIDIA's public source, github.com/NVIDIA/TensorRT, samples/common/sampleOptions.cpp: an option is
listed for a major version if every tagged release of it parses it (10: v10.0.1 to v10.16; 11: v11.0 and v11.1). Left
out of 11 is ``--int8``, which only the parser of the safety builder still takes.
"""

from __future__ import annotations

from collections.abc import Mapping


def _options(names: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in names.split())


TRTEXEC_10 = _options(
    """
    allocationStrategy allowGPUFallback allowWeightStreaming avgRuns avgTiming best bf16 buildDLAStandalone
    builderOptimizationLevel calib calibProfile device directIO dumpLayerInfo dumpOptimizationProfile
    dumpOutput dumpProfile dumpRawBindingsToFile dumpRefit duration dynamicPlugins errorOnTimingCacheMiss
    excludeLeanRuntime exportLayerInfo exportOutput exportProfile exportTimes exposeDMA fp16 fp8
    getPlanVersionOnly hardwareCompatibilityLevel help idleTime ignoreParsedPluginLibs infStreams
    inputIOFormats int8 iterations layerDeviceTypes layerOutputTypes layerPrecisions leanDLLPath loadEngine
    loadInputs markDebug maxAuxStreams maxShapes maxShapesCalib memPoolSize minShapes minShapesCalib
    noBuilderCache noCompilationCache noDataTransfers noTF32 onnx optShapes optShapesCalib outputIOFormats
    percentile persistentCacheRatio pi pluginInstanceNorm plugins precisionConstraints preview profile
    profilingVerbosity refit restricted safe saveDebugTensors saveEngine separateProfileRun serialized
    setPluginsToSerialize shapes skipInference sleepTime sparsity staticPlugins std streams stripWeights
    stronglyTyped tacticSources tempdir tempfileControls threads timeDeserialize timeRefit timingCacheFile
    useCudaGraph useDLACore useManagedMemory useProfile useRuntime useSpinWait vc verbose versionCompatible
    warmUp weightStreamingBudget weightless
    """
)

TRTEXEC_11 = _options(
    """
    adjustForDLA allocationStrategy allowGPUFallback allowWeightStreaming asyncFileReader avgRuns avgTiming
    buildDLAStandalone builderOptimizationLevel consistency cpuOnly decomposableAttentions device directIO
    distributiveIndependence dumpKernelText dumpLayerInfo dumpOptimizationProfile dumpOutput dumpProfile
    dumpRawBindingsToFile dumpRefit duration dynamicPlugins enablePluginOverride errorOnTimingCacheMiss
    excludeLeanRuntime exportLayerInfo exportOutput exportProfile exportTimes exposeDMA getPlanVersionOnly
    hardwareCompatibilityLevel help idleTime ignoreParsedPluginLibs includeDataTransfers infStreams
    inputIOFormats iterations l2LimitForTiling layerDeviceTypes leanDLLPath loadEngine loadInputs markDebug
    markUnfusedTensorsAsDebugTensors maxAuxStreams maxShapes maxTactics memPoolSize minShapes monitorMemory
    noBuilderCache noCompilationCache noCudaGraph noDataTransfers noSpinWait noTF32 onnx optShapes
    outputIOFormats percentile persistentCacheRatio pi pluginInstanceNorm plugins preview profile
    profilingVerbosity refit refitFromOnnx remoteAutoTuningConfig reportCapabilityDLA runtimePlatform safe
    safetyPlugins saveAllDebugTensors saveDebugTensors saveEngine separateProfileRun setPluginsToSerialize
    shapes skipInference sleepTime sparsity staticPlugins std streams stripAllWeights stripWeights
    stronglyTyped tacticSources tempdir tempfileControls threads tilingOptimizationLevel timeDeserialize
    timeRefit timingCacheFile uint8AsymmetricQuantizationDLA useCudaGraph useDLACore useManagedMemory
    useProfile useRuntime useSpinWait vc verbose versionCompatible warmUp weightStreamingBudget
    """
)

OPTIONS: Mapping[int, frozenset[str]] = {10: TRTEXEC_10, 11: TRTEXEC_11}
"""Options by major version; trtexec refuses any other."""
